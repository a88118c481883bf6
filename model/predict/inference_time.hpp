// Seconds of a trainer's forward passes without gradients, analytically (model/plan/beside.hpp).
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// Of one pass; `plan` is the pass's.
Seconds inference_seconds(const Plan& plan);

// Adds those of a plan's trainer to its optimizer step: `step` is that of the trained model alone.
void add_inference_time(const Plan& policy, StepTime& step);

}  // namespace zeroplan
