// The answer of `zeroplan fit`: does it fit, how, and what to change when it does not.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "model/plan/scenario.hpp"
#include "model/predict/predict_options.hpp"
#include "tuner/fit_answer.hpp"
#include "tuner/fit_question.hpp"

namespace zeroplan::tuner {

// Plans every strategy with the batch that was said, or the usual one. Host memory that nobody
// stated is a condition of the answer (StepResult::host_condition). Throws InputError as resolve()
// does.
FitAnswer fit(const Scenario& scenario, const PredictOptions& options = {});

// The strategies of that answer and the recommended one, with the packages that it needs, and
// nothing beside them.
FitAnswer strategies_alone(const Scenario& scenario, const PredictOptions& options = {});

// Every strategy that offloads at most so much (offload_of()) with its best batch, by the analytic
// estimate alone.
inline constexpr int kAnyOffload = std::numeric_limits<int>::max();
std::vector<StrategyResult> estimated(const Question& question,
                                      const PredictOptions& options,
                                      int most_offload = kAnyOffload);

// The best strategy by simulation of the few that the analytic estimate likes most; nothing where
// none of them fits.
std::optional<StrategyResult> found_roughly(const Question& question,
                                            const PredictOptions& options,
                                            int most_offload = kAnyOffload);

// A first answer in a small part of the time: the strategies that offload least, each with its best
// batch, by the analytic estimate; the one that it likes best is simulated, the next where that
// does not fit, and recommended. More offload where none fits. Another may be better once all are
// simulated. Nothing but the strategies that were looked at and the recommendation is in it.
FitAnswer quick_fit(const Scenario& scenario, const PredictOptions& options = {});

}  // namespace zeroplan::tuner
