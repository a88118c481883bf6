// The answer of tune as text.
#pragma once

#include <optional>
#include <string>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "tuner/tune.hpp"

namespace zeroplan {

// price: of a GPU-hour.
std::string tune_text(const TuneAnswer& answer,
                      const TuneOptions& options,
                      std::optional<double> price,
                      const Translation& words);

// "1.86 GPU-hours a million tokens", and what they cost.
Phrase cost_text(const StepResult& result, std::optional<double> price);

}  // namespace zeroplan
