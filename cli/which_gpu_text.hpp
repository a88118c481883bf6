// The answers of cli/which_gpu.hpp as text.
#pragma once

#include <string>

#include "cli/language/translation.hpp"
#include "model/phrase.hpp"
#include "tuner/which_gpu.hpp"

namespace zeroplan {

std::string which_gpu_text(const WhichAnswer& answer,
                           const WhichQuestion& question,
                           const Translation& words);

// `found`: what the goal asked for, as a sentence in English.
std::string reach_text(const Phrase& found, const FitAnswer& answer, const Translation& words);

}  // namespace zeroplan
