// 90 % intervals of what a GPU's memory shows: allocated, reserved, total.
//
//   allocated  A (1 +- 1.645 d_A), d_A simulated_allocated_sd; where not every request is known
//   d_A^2
//              of activations, engine's buffers, code
//   reserved   what was simulated, with simulated_reserved_sd and A's deviation; where not every
//   request
//              is known A (1 + g), with A's deviation, that of g and of copies that wait for their
//              stream
//   total      reserved + context + NCCL, with theirs
//
// g is reserved_gap_share with its relative sd. The prediction itself is always inside, and so is
// what was replayed where that is more: stage 3's gathers and reductions on streams of their own
// leave blocks that no other stream takes.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// Is memory PyTorch's caching allocator's? Not a CPU rank's, which keeps nothing, nor the embedded
// runtime's, which has its own.
bool has_torch_allocator(const Plan& plan);

// [M2] Whether every request of the program is known, so that what the simulator's allocator keeps
// is what PyTorch's does: transformers' classes without a pipeline.
bool simulates_every_request(const Plan& plan);

// [M2] Reserved at the peak of other plans, as runs usually have it: A (1 + g), A what is allocated
// then. What the allocator keeps beside the peak turns on the order of every allocation, and
// replaying those that are known says less of what a run of Megatron's code showed than this share
// does (docs/validate.md has both errors by source). Of plans with PyTorch's allocator. Left out:
// its settings, PYTORCH_CUDA_ALLOC_CONF. Checked by
// tests/unit/model/predict/memory_intervals_test.cpp.
Bytes usually_reserved(const Plan& plan, Bytes allocated);

struct MemoryIntervals {
  Interval<Bytes> allocated;
  Interval<Bytes> reserved;
  Interval<Bytes> total;
};

// Around the peaks of `gpu`. `analytic`: the analytic estimate of the same rank, whose spread is
// scaled to the allocated peak. `simulated`: the peaks are a simulation's.
MemoryIntervals memory_intervals(const Plan& plan,
                                 const GpuMemory& gpu,
                                 const MemoryPrediction& analytic,
                                 bool simulated);

}  // namespace zeroplan
