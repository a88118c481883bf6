// 90 % intervals of what a GPU's memory shows: allocated, reserved, total.
//
//   allocated  A (1 +- 1.645 d_A), d_A^2 of activations, engine's buffers, code
//   reserved   A (1 + g) and A's deviation, that of g and of copies that wait for their stream
//   total      reserved + context + NCCL, with theirs
//
// g is reserved_gap_share with its relative sd. The prediction itself is always inside, and so is
// what was replayed where that is more: stage 3's gathers and reductions on streams of their own
// leave blocks that no other stream takes, and few such runs were measured.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// Is memory PyTorch's caching allocator's? Not a CPU rank's, which keeps nothing, nor the embedded
// runtime's, which has its own.
bool has_torch_allocator(const Plan& plan);

// [M2] Reserved at the peak, as runs usually have it: A (1 + g), A what is allocated then.
// What the allocator keeps beside the peak turns on the order of every allocation, and replaying
// those that are known says less of what a run showed than this share does (docs/validate.md has
// both errors by source). Of plans with PyTorch's allocator. Left out: its settings,
// PYTORCH_CUDA_ALLOC_CONF. Checked by tests/unit/memory_intervals_test.cpp.
Bytes usually_reserved(const Plan& plan, Bytes allocated);

// Fills the three intervals of `result` around its gpu's peaks, played or not. `closed`: the closed
// form, whose spread is scaled to the allocated peak.
void take_memory_intervals(const Plan& plan, const MemoryPrediction& closed, StepResult& result);

}  // namespace zeroplan
