// In the place of cli/tokenized_dataset.cpp: a browser has no Python.
#include "base/diagnostic.hpp"
#include "cli/arguments.hpp"
#include "cli/tokenized_dataset.hpp"

namespace zeroplan::cli {

Json tokenized_dataset(const std::string&, const std::string& tokenizer) {
  throw InputError({kCommandLine,
                    "--tokenizer",
                    "--lengths FILE, or --dataset with a mean",
                    in_quotes(tokenizer),
                    "a browser starts no Python"});
}

}  // namespace zeroplan::cli
