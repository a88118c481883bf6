// What is predicted of a plan's memory, GPU and host, and how far it may be off.
#pragma once

#include <optional>

#include "base/units.hpp"
#include "model/engine/fetch_swap.hpp"
#include "model/predict/step_result.hpp"

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

}  // namespace zeroplan
