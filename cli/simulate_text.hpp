// One prediction as text.
#pragma once

#include <optional>
#include <string>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/checkpoint.hpp"
#include "model/predict/step_result.hpp"
#include "tuner/remedies.hpp"

namespace zeroplan::cli {

// A line: what there must be of a resource and what there is; of a pool of buffers, what is wrong.
Phrase limit_text(const Limit& limit);

// Steps and time of the whole run, and which share each part has, as lines of an answer; empty
// where the scenario has no dataset.
Phrase job_lines(const std::optional<JobTime>& job);

// `remedies`: where it does not fit.
std::string simulate_text(const Plan& plan,
                          const StepResult& result,
                          const tuner::Remedies& remedies,
                          const std::optional<CheckpointPrediction>& checkpoint,
                          const Translation& words);

}  // namespace zeroplan::cli
