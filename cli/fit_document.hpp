// The document of `zeroplan fit --json` with its sentences in a language.
#pragma once

#include "base/json.hpp"
#include "cli/language/translation.hpp"
#include "model/plan/scenario.hpp"
#include "tuner/fit_answer.hpp"

namespace zeroplan::cli {

// zeroplan.fit/1, as to_json() of the answer, with what a reader is shown of it in the language of
// `words`: the names of the strategies, what was assumed, warnings, and what would make it fit.
Json fit_document(const tuner::FitAnswer& answer,
                  const Scenario& scenario,
                  const Translation& words);

}  // namespace zeroplan::cli
