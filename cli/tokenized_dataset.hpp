// --dataset FILE.jsonl --tokenizer DIR: the tokens of a user's samples, counted by their own
// tokenizer in their own Python.
#pragma once

#include <string>

#include "base/json.hpp"

namespace zeroplan::cli {

// `samples` and `lengths` of a scenario's dataset. Throws InputError where there is no Python with
// tokenizers, and for what it cannot read.
Json tokenized_dataset(const std::string& file, const std::string& tokenizer);

}  // namespace zeroplan::cli
