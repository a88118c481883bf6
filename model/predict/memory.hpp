// Memory of a plan analytically: GPU of the worst rank and host of a node, by category and phase.
//
// [M1] peak = max over phases and passes of
//        engine buffers alive then            model/engine/buffers.hpp
//      + activations alive then, and the rise of the pass over its block
//                                             model/predict/activation_timeline.hpp
//      + gathered weights (stage 3)           model/predict/gather_timeline.hpp
//      + gradients in flight, and the copies a flush makes
//                                             model/engine/gradient_buckets.hpp, transients.hpp
//      + workspaces
// Evaluated at the granularity of one pass over one block (window_memory.hpp); load,
// initialisation, step and save in step_memory.hpp; the simulator plays the same objects event by
// event. Reserved memory adds a share of what varies (coefficient allocator_fragmentation). Checked
// by tests/unit/memory_test.cpp.
#pragma once

#include <span>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

// What peak_total may differ by, each an independent cause: one standard deviation in bytes.
struct MemorySpread {
  double activations = 0.0;   // activations, logits, temporaries: tensors kept longer than thought
  double states = 0.0;        // the engine's buffers
  double gap = 0.0;           // reserved and not allocated
  double waiting = 0.0;       // freed copies that wait for their stream
  double outside = 0.0;       // context and NCCL
  double quantization = 0.0;  // buffers of quantised gathers, which are not described
  double code = 0.0;          // Megatron's classes, of which there is no recording
};

// Single changes with which the pool of buffers behind weights on NVMe does, each tried.
struct PoolChanges {
  bool without_reuse = false;       // stage3_max_reuse_distance 0
  bool without_prefetch = false;    // stage3_prefetch_bucket_size 0
  std::optional<int> more_buffers;  // so many
};

struct MemoryPrediction {
  GpuMemory gpu;
  HostMemory host;
  Bytes nvme;                // per node
  SwapPoolUse weights_pool;  // of buffers behind weights on NVMe
  PoolChanges pool_changes;  // where it does not do
  Bytes gpu_needed;          // peak_total less what the allocator gives back under pressure
  MemorySpread spread;
  double relative_sd = 0.0;       // of gpu.peak_total, one standard deviation
  double host_relative_sd = 0.0;  // of host.peak
};

MemoryPrediction predict_memory(const Plan& plan, const StepWork& work);

// CUDA context and NCCL's buffers of a rank: what of peak_total no allocator sees.
Bytes outside_torch_bytes(const Plan& plan);

// Coefficients that a prediction of memory, GPU or host, depends on; none of them is in a time.
// Checked by tests/unit/memory_test.cpp.
std::span<const Coefficient> memory_coefficients();

}  // namespace zeroplan
