// How values are spelled in users' ds_configs: what a text in quotes means, and how the reader says
// what it expected. Only for ds_config_reader.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "model/knobs/knobs.hpp"

namespace zeroplan::spelling {

std::string lower(std::string_view text);

// A number in quotes, as a number; nothing for any other text, "nan" and "inf" included.
std::optional<Json> number_in(std::string_view quoted);
// "true", "False", "1"; nothing for any other text.
std::optional<bool> boolean_in(std::string_view quoted);

// "${STAGE}", "<stage>", "{{ stage }}": a value that a script should have filled.
bool has_placeholder_marks(std::string_view text);
// The same, and names in upper case ("CONFIG_MBSIZE"), which only a text without a fixed set of
// values may be.
bool is_placeholder(std::string_view text);

// The row's spelling of a value, for spellings that differ from it ("CPU", "bfloat16").
std::optional<std::string> canonical_text(const KnobRow& row, std::string_view given);

// The row's values, and what DeepSpeed takes for them: "fp16", "float16", "half".
std::vector<std::string> accepted_texts(const KnobRow& row);

// A copy in which every key stands once, with its last value, as Python reads it.
Json without_repetition(const Json& value);

// "an integer between 0 and 3", "true or false", "\"none\", \"cpu\" or \"nvme\"".
Phrase expectation(const KnobRow& row);

}  // namespace zeroplan::spelling
