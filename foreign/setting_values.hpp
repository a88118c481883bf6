// What values of other tools' settings say, as documents and command lines have them.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace zeroplan::foreign {

// A whole number in a setting's value, as number or text; 0 for anything else.
std::int64_t count_of(const Json& value);
// The value as a text: what stood there.
std::string text_of(const Json& value);

// true, yes, 1, on, and what tools take for it (auto, full).
bool is_on(const Json& value);
// false, no, none, 0, off.
bool is_switched_off(const Json& value);
bool says_nothing(const Json& value);

// Names of modules: a list, "q_proj,v_proj", "q_proj v_proj", "[q_proj,v_proj]".
std::vector<std::string> names_in(const Json& value);

}  // namespace zeroplan::foreign
