// What fit and tune print alike: lists of sentences, and the changes after which something fits.
#pragma once

#include <string>
#include <vector>

#include "tuner/fit.hpp"

namespace zeroplan {

// The title on a line, the sentences below it; nothing where there is none.
std::string list_text(const std::string& title, const std::vector<std::string>& lines);

// Two lines for each: the change, and what then fits.
std::string remedy_lines(const std::vector<Remedy>& remedies);

}  // namespace zeroplan
