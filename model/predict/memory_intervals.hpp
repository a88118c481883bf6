// 90 % intervals of what a GPU's memory shows: allocated, reserved, total.
//
//   allocated  A (1 +- 1.645 d_A), d_A^2 of activations, engine's buffers, code
//   reserved   A (1 + g) and A's deviation, that of g and of copies that wait for their stream
//   total      reserved + context + NCCL, with theirs
//
// g is reserved_gap_share with its relative sd: what the allocator keeps beside the peak turns on
// the order of every allocation, and replaying those that are known says little of what a run
// showed (docs/validate.md). The prediction itself is always inside.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// Fills the three intervals of `result` around its gpu's peaks, played or not. `closed`: the closed
// form, whose spread is scaled to the allocated peak.
void take_memory_intervals(const Plan& plan, const MemoryPrediction& closed, StepResult& result);

}  // namespace zeroplan
