// Plan -> prediction, analytically: what the tuner uses as a bound and `fit` as an answer.
//
//   memory.hpp      GPU and host memory by category and phase
//   step_time.hpp   time of a step from the cost functions and the engine's messages
//   predict.cpp     puts them together, adds intervals, and decides whether it fits
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

StepResult predict(const Plan& plan, const PredictOptions& options = {});

}  // namespace zeroplan
