// One prediction as text.
#pragma once

#include <optional>
#include <string>

#include "cli/language/translation.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/checkpoint.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// A line: what there must be of a resource and what there is; of a pool of buffers, what is wrong.
std::string limit_text(const Limit& limit);

// Steps and time of the whole run, where the scenario has a dataset.
std::string job_text(const JobTime& job);
// Which share of its time each part has.
std::string job_shares_text(const JobTime& job);

std::string simulate_text(const Plan& plan,
                          const StepResult& result,
                          const std::optional<CheckpointPrediction>& checkpoint,
                          const Translation& words);

}  // namespace zeroplan
