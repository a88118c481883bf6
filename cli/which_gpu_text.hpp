// The answers of cli/which_gpu.hpp as text.
#pragma once

#include <optional>
#include <string>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "tuner/reach.hpp"
#include "tuner/which_gpu.hpp"

namespace zeroplan {

std::string which_gpu_text(const WhichAnswer& answer,
                           const WhichQuestion& question,
                           const Translation& words);

// The answers of --goal.
Phrase lengths_text(const LongestSequences& lengths);
Phrase largest_text(const std::optional<LargestModel>& largest);

}  // namespace zeroplan
