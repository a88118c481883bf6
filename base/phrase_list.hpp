// Names and clauses in a row, as phrases: "a, b, c".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"

namespace zeroplan {

// The parts with a separator between them. "a, b, c" is a phrase "{}, {}" of "a" and "b, c", so
// that the catalogue needs a row for two parts alone. Precondition: no part is empty.
Phrase phrase_list(const std::vector<Phrase>& parts, const char* separator = ", ");
Phrase phrase_list(std::span<const std::string> names, const char* separator = ", ");
Phrase phrase_list(std::span<const std::string_view> names, const char* separator = ", ");

}  // namespace zeroplan
