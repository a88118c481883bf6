// Plan -> prediction, in closed form: what the tuner uses as a bound and `fit` as an answer.
//
//   memory.hpp      GPU and host memory by category and phase
//   step_time.hpp   time of a step from the cost functions and the engine's messages
//   predict.cpp     puts them together, adds intervals, and decides whether it fits
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

struct PredictOptions {
  double confidence = 0.95;  // a plan fits when it does with at least this probability
  Bytes reserve;             // GPU memory kept free for others
  // The likeliest numbers alone, for searches: the time's interval is a point, and other networks
  // are left out. These take most of a prediction's time.
  bool likeliest_alone = false;
};

StepResult predict(const Plan& plan, const PredictOptions& options = {});

}  // namespace zeroplan
