// Throughput and utilisation of a step.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// Those that follow from step.total: tokens a second and GPU, samples a second of the job, FLOP/s
// of the model's own arithmetic (recomputation left out) and their share of the GPU's dense rate.
// Checked by tests/unit/model/predict/step_time_test.cpp.
void fill_rates(const Plan& plan, StepTime& step);

}  // namespace zeroplan
