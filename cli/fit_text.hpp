// The answer of `zeroplan fit` as text.
#pragma once

#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "tuner/fit.hpp"
#include "tuner/why.hpp"

namespace zeroplan::cli {

// The answer, why, what else, the launch line; then the strategies, ds_config.json and what was
// assumed. `all`: the strategies with either checkpointing, not with the better one.
// `reasons`: of --why.
std::string fit_text(const tuner::FitAnswer& answer,
                     const std::vector<tuner::Alternative>& reasons,
                     const Phrase& cost,
                     bool all,
                     const Translation& words);

}  // namespace zeroplan::cli
