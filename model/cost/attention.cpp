#include "model/cost/attention.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

constexpr double kQueryRows = 128.0;  // queries of one thread block

// Shares of the peak at head dimensions 64, 128 and 256, and the prologue in keys.
struct KernelFit {
  double at64, at128, at256, prologue, backward_rate;
};

KernelFit fit_of(AttentionKernel kernel, const Coefficients& c) {
  using K = Coefficient;
  switch (kernel) {
    case AttentionKernel::flash1:
      return {c[K::flash1_efficiency_64],
              c[K::flash1_efficiency_128],
              c[K::flash1_efficiency_128],
              c[K::flash1_prologue_keys],
              1.0};
    case AttentionKernel::triton:
      return {c[K::triton_attention_efficiency_64],
              c[K::triton_attention_efficiency_128],
              c[K::triton_attention_efficiency_128],
              c[K::flash1_prologue_keys],
              1.0};
    case AttentionKernel::flash2:
      return {c[K::flash2_efficiency_64],
              c[K::flash2_efficiency_128],
              c[K::flash2_efficiency_256],
              c[K::flash2_prologue_keys],
              c[K::flash2_backward_rate]};
    case AttentionKernel::flash3:
      return {c[K::flash3_efficiency_64],
              c[K::flash3_efficiency_128],
              c[K::flash3_efficiency_256],
              c[K::flash3_prologue_keys],
              c[K::flash3_backward_rate]};
    case AttentionKernel::cudnn:
      return {c[K::cudnn_attention_efficiency_64],
              c[K::cudnn_attention_efficiency_128],
              c[K::cudnn_attention_efficiency_128],
              c[K::cudnn_attention_prologue_keys],
              c[K::flash3_backward_rate]};
    case AttentionKernel::cutlass:
    case AttentionKernel::math:
      return {c[K::cutlass_attention_efficiency_64],
              c[K::cutlass_attention_efficiency_128],
              c[K::cutlass_attention_efficiency_128],
              c[K::cutlass_attention_prologue_keys],
              1.0};
  }
  return {};
}

// Linear in the head dimension between the fitted ones; below 64 a tile is padded to what 64 takes.
double efficiency_at(const KernelFit& fit, double head_dim) {
  if (head_dim <= 64.0) return fit.at64 * head_dim / 64.0;
  if (head_dim <= 128.0) return fit.at64 + (fit.at128 - fit.at64) * (head_dim - 64.0) / 64.0;
  const double share = std::min(1.0, (head_dim - 128.0) / 128.0);
  return fit.at128 + (fit.at256 - fit.at128) * share;
}

}  // namespace

AttentionKernel attention_kernel(const AttentionCall& call,
                                 const AttentionSoftware& software,
                                 const Gpu& gpu) {
  const SdpaBackend backend = call.backend;
  if (backend == SdpaBackend::math) return AttentionKernel::math;
  const ComputeCapability& capability = gpu.compute_capability;
  const bool sdpa_flash1 = !software.acts(ReleaseRule::sdpa_has_flash_2) && !software.embedded;
  if (capability < ComputeCapability{7, 5}) return AttentionKernel::cutlass;
  if (capability < ComputeCapability{8, 0} && !sdpa_flash1) return AttentionKernel::cutlass;
  if (backend == SdpaBackend::mem_efficient) return AttentionKernel::cutlass;
  if (software.implementation == Implementation::composer &&
      (!software.torch_said || !software.acts(ReleaseRule::composer_has_flash_2))) {
    return AttentionKernel::triton;
  }
  const bool hopper_or_b200 =
      capability == ComputeCapability{9, 0} || capability == ComputeCapability{10, 0};
  if (software.embedded) {
    const bool half = call.dtype == DType::bf16 || call.dtype == DType::fp16;
    const bool for_cudnn = half && !call.alibi && call.head_dim <= 128 && call.head_dim % 8 == 0;
    return for_cudnn && hopper_or_b200 ? AttentionKernel::cudnn : AttentionKernel::flash2;
  }
  if (software.requested == Attention::flash) {
    return software.acts(ReleaseRule::goes_with_flash_attn_2) ? AttentionKernel::flash2
                                                              : AttentionKernel::flash1;
  }
  if (sdpa_flash1) return AttentionKernel::flash1;
  const bool first_cudnn =
      software.acts(ReleaseRule::first_cudnn_attention) && capability.major >= 9;
  if (first_cudnn || (software.acts(ReleaseRule::prefers_cudnn_attention) && hopper_or_b200)) {
    return AttentionKernel::cudnn;
  }
  return AttentionKernel::flash2;
}

Seconds attention_time(const AttentionCall& call,
                       AttentionKernel kernel,
                       const Gpu& gpu,
                       const Coefficients& coefficients) {
  if (call.batch <= 0 || call.heads <= 0 || call.queries <= 0 || call.keys <= 0) return {};
  ZP_CHECK(call.head_dim > 0, "attention without a head dimension");
  const KernelFit fit = fit_of(kernel, coefficients);
  const double multiprocessors = static_cast<double>(std::max<std::int64_t>(1, gpu.sm_count.value));
  const double head_dim = static_cast<double>(call.head_dim);
  const double keys = static_cast<double>(call.keys);
  const double seen = call.causal ? std::min(keys, (keys + kQueryRows) / 2.0) : keys;
  const double blocks = static_cast<double>(call.batch) * static_cast<double>(call.heads) *
                        std::ceil(static_cast<double>(call.queries) / kQueryRows);
  const double x = blocks / multiprocessors;
  const double waves = std::max(1.0, x + 0.5 * (std::ceil(x) - x));
  const double peak = dense_peak(gpu, call.dtype).value.value();
  const double rate = peak / multiprocessors * efficiency_at(fit, head_dim);
  const double work = call.backward ? 2.5 / fit.backward_rate : 1.0;
  const double seconds = work * waves * 4.0 * kQueryRows * head_dim * (seen + fit.prologue) / rate;
  return Seconds::of(coefficients[Coefficient::attention_fixed_seconds] + seconds);
}

}  // namespace zeroplan
