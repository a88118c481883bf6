// Time of the optimizer step on the GPU: Adam, gradient norm, unscaling and overflow checks. All of
// it streams memory.
//
// Units: Seconds, Bytes, Elements (parameters on this GPU, after partitioning).
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/dtype.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

enum class GpuAdam {
  fused,    // one kernel: DeepSpeed's FusedAdam, torch.optim.AdamW(fused=True)
  foreach,  // PyTorch's default on GPUs: one kernel an arithmetic operation and list of tensors
};

struct GpuAdamWork {
  Elements parameters;
  DType master = DType::fp32;    // of weights, momentum and variance
  DType gradient = DType::fp32;  // as the optimizer reads it
  bool writes_half_copy = true;  // 16-bit weights are written back
  GpuAdam kind = GpuAdam::fused;
};

// [T11] Bytes of one Adam step:  M = P (g + 3 w + 3 w + [copy] 2), fused; foreach
// `adam_foreach_traffic_ratio` as many. P parameters; w, g widths of states and gradients: weight,
// momentum and variance are read and written. Source: derived; 30 bytes a parameter for fp32 states
// (DeepSpeed csrc/adam/multi_tensor_adam.cu reads and writes each once).
// Checked by tests/unit/model/cost/cluster_costs_test.cpp.
Bytes gpu_adam_bytes(const GpuAdamWork& work, const Coefficients& coefficients);

// M over the memory's rate times `adam_bandwidth_efficiency`.
Seconds gpu_adam_time(const GpuAdamWork& work, const Gpu& gpu, const Coefficients& coefficients);

// Muon's part of the step on flat weights, with updates of their type: weight decay reads and
// writes weights, the sum reads weights and update and writes weights (muon_optimizer.py step).
Seconds muon_addition_time(Elements parameters,
                           DType master,
                           const Gpu& gpu,
                           const Coefficients& coefficients);

// Reads every gradient once: the norm, or the scan for infinities.
Seconds gradient_scan_time(Elements gradients,
                           DType type,
                           const Gpu& gpu,
                           const Coefficients& coefficients);

// Reads and writes every gradient once: unscaling, clipping, averaging.
Seconds gradient_scale_time(Elements gradients,
                            DType type,
                            const Gpu& gpu,
                            const Coefficients& coefficients);

}  // namespace zeroplan
