// The prediction of a plan whose work is at hand already: the simulator needs the same graph and
// gathers, and those of a model with thousands of experts take a good part of a prediction's time.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

// As predict(plan, options). Precondition: no pipeline, and `work` is step_work(plan).
StepResult predict(const Plan& plan, const StepWork& work, const PredictOptions& options);

}  // namespace zeroplan
