// PyTorch's DistributedDataParallel as plain data: its gradient buckets and what a rank holds.
//
// Sources: torch 2.6 torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp.
#pragma once

#include <span>
#include <vector>

#include "base/units.hpp"
#include "model/engine/buffers.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

struct DdpConfig {
  int ranks = 1;                        // one: no wrapper around the module, so no buckets
  int gradient_accumulation_steps = 1;  // no_sync until the last micro-step
  DType weight_dtype = DType::fp32;     // of weights, gradients and the optimizer's states
  DType compute_dtype = DType::bf16;    // another one: torch.autocast, with cached casts of weights
  bool autocast_adapters = false;       // torch.autocast where only adapters are wider
  Bytes first_bucket = Bytes::mib(1);   // dist._DEFAULT_FIRST_BUCKET_BYTES
  Bytes bucket = Bytes::mib(25);        // bucket_cap_mb
  bool gradient_as_bucket_view = false;
  bool gradients_held = false;  // zero_grad() comes behind the next forward pass
  OptimizerKind optimizer = OptimizerKind::torch_adam;
  OptimizerImplementation optimizer_implementation = OptimizerImplementation::foreach;
  bool double_quant = false;  // of scales, where weights are stored in four bits

  DType dtype_of(const EngineParameter& parameter) const {
    return parameter.own_dtype.value_or(weight_dtype);
  }
  bool autocasts() const { return weight_dtype != compute_dtype || autocast_adapters; }
};

struct DdpBucket {
  std::vector<int> parameters;  // in the order in which their gradients are complete
  Elements numel;
};

// Buckets after the first backward pass has shown the order (Reducer::rebuild_buckets): a bucket is
// closed by the gradient that reaches its limit (compute_bucket_assignment_by_size).
std::vector<DdpBucket> ddp_buckets(const DdpConfig& config,
                                   std::span<const EngineParameter> parameters,
                                   std::span<const std::int32_t> gradient_order);

// What the module's parameters take, quantisation states included.
Bytes ddp_weight_bytes(const DdpConfig& config, std::span<const EngineParameter> parameters);

std::vector<EngineBuffer> ddp_buffers(const DdpConfig& config,
                                      std::span<const EngineParameter> parameters);

// Elements that the optimizer updates, and what its step makes beside the buffers.
Elements ddp_trained(std::span<const EngineParameter> parameters);
Bytes ddp_step_temporaries(const DdpConfig& config, std::span<const EngineParameter> parameters);

}  // namespace zeroplan
