// The answer of `zeroplan fit` as text.
#pragma once

#include <string>

#include "cli/language/translation.hpp"
#include "tuner/fit.hpp"

namespace zeroplan {

std::string fit_text(const FitAnswer& answer, const Translation& words);

}  // namespace zeroplan
