// YAML as a JSON value, with lines: what LLaMA-Factory, axolotl and accelerate are configured in.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace zeroplan::foreign {

// Whether this program was built with libyaml.
bool reads_yaml();

// The first document of the text, with plain scalars resolved as PyYAML's safe_load does, because
// that is what the tools read with: "1e-5" is a text and "1.0e-5" a number, "yes" is true. Aliases
// are copied, "<<" merges. A text that says nothing is null. Throws InputError with line and
// column; also for keys that are no texts, for more than 100,000 values or 10,000 keys of
// one mapping, and where reads_yaml() is false.
Json parse_yaml(std::string_view text, const std::string& file);

}  // namespace zeroplan::foreign
