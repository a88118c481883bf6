// The answer of `zeroplan fit`: does it fit, how, and what to change when it does not.
#pragma once

#include "model/plan/scenario.hpp"
#include "model/predict/predict_options.hpp"
#include "tuner/fit_answer.hpp"

namespace zeroplan {

// Plans every strategy with the batch that was said, or the usual one. Host memory that nobody
// stated is a requirement (PredictOptions::host_is_open). Throws InputError as resolve() does.
FitAnswer fit(const Scenario& scenario, const PredictOptions& options = {});

// A first answer in a small part of the time: the strategies that offload least, each with its best
// batch, by the analytic estimate; the one that it likes best is simulated, the next where that
// does not fit, and recommended. More offload where none fits. Another may be better once all are
// simulated. Nothing but the strategies that were looked at and the recommendation is in it.
FitAnswer quick_fit(const Scenario& scenario, const PredictOptions& options = {});

}  // namespace zeroplan
