// What a plain YAML scalar is.
#pragma once

#include <string_view>

#include "base/json.hpp"

namespace zeroplan::foreign {

// By the rules of YAML 1.1 as PyYAML applies them (yaml/resolver.py, yaml/constructor.py): null,
// booleans, integers in four bases, numbers with a point; everything else is a text (dates, too:
// nobody plans with them).
Json plain_scalar(std::string_view text);

}  // namespace zeroplan::foreign
