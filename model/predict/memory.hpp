// Memory of a plan analytically: GPU of the worst rank and host of a node, by category and phase.
//
// [M1] peak = max over phases and passes of
//        engine buffers alive then            model/engine/buffers.hpp
//      + activations alive then, and the rise of the pass over its block
//                                             model/graph/activation_timeline.hpp
//      + gathered weights (stage 3)           model/predict/gather_timeline.hpp
//      + gradients in flight, and the copies a flush makes
//                                             model/engine/gradient_buckets.hpp, transients.hpp
//      + workspaces
// Evaluated at the granularity of one pass over one block (window_memory.hpp); load,
// initialisation, step and save in outside_passes.hpp; the simulator plays the same objects event
// by event. Reserved memory adds a share of what varies (coefficient allocator_fragmentation).
// Checked by tests/unit/model/predict/memory_test.cpp.
#pragma once

#include <span>

#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

MemoryPrediction predict_memory(const Plan& plan, const StepWork& work);
// The pool of buffers behind weights on NVMe left out: nine tenths of the time where there is one.
MemoryPrediction predict_memory_without_pool(const Plan& plan, const StepWork& work);

// CUDA context and NCCL's buffers of a rank: what of peak_total no allocator sees.
Bytes outside_torch_bytes(const Plan& plan);

// Coefficients that a prediction of memory, GPU or host, depends on; none of them is in a time.
// Checked by tests/unit/model/predict/memory_test.cpp.
std::span<const Coefficient> memory_coefficients();

}  // namespace zeroplan
