// Where in a file a finding stands: editors and CI show findings at lines.
#pragma once

#include <string>
#include <string_view>

#include "base/diagnostic.hpp"
#include "base/json.hpp"

namespace zeroplan {

// 1-based; 0 where the file has neither the key nor what would hold it.
struct Place {
  int line = 0;
  int column = 0;
};

// The value at a JSON pointer; where the key is missing, or written in another spelling of the knob
// table, that spelling's value, else the object that lacks it.
Place place_of(const Json& root, std::string_view pointer);

// Where an input error stands: its pointer is a JSON pointer, or says "line 3, column 7" itself.
Place place_of(const Diagnostic& problem);

}  // namespace zeroplan
