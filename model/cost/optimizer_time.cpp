#include "model/cost/optimizer_time.hpp"

namespace zeroplan {
namespace {

Seconds streamed(Bytes bytes, const Gpu& gpu, const Coefficients& c) {
  if (bytes == Bytes::zero()) return {};
  return bytes / (gpu.memory_bandwidth.value * c[Coefficient::adam_bandwidth_efficiency]) +
         Seconds::of(c[Coefficient::kernel_floor_seconds]);
}

}  // namespace

Bytes gpu_adam_bytes(const GpuAdamWork& work, const Coefficients& coefficients) {
  const std::int64_t a_parameter =
      width(work.gradient) + 6 * width(work.master) + (work.writes_half_copy ? 2 : 0);
  const Bytes fused = work.parameters.times_width(a_parameter);
  if (work.kind == GpuAdam::fused) return fused;
  return Bytes::nearest(static_cast<double>(fused.count()) *
                        coefficients[Coefficient::adam_foreach_traffic_ratio]);
}

Seconds gpu_adam_time(const GpuAdamWork& work, const Gpu& gpu, const Coefficients& coefficients) {
  return streamed(gpu_adam_bytes(work, coefficients), gpu, coefficients);
}

Seconds muon_addition_time(Elements parameters,
                           DType master,
                           const Gpu& gpu,
                           const Coefficients& coefficients) {
  return streamed(parameters * master * 2, gpu, coefficients) +
         streamed(parameters * master * 3, gpu, coefficients);
}

Seconds gradient_scan_time(Elements gradients,
                           DType type,
                           const Gpu& gpu,
                           const Coefficients& coefficients) {
  return streamed(gradients * type, gpu, coefficients);
}

Seconds gradient_scale_time(Elements gradients,
                            DType type,
                            const Gpu& gpu,
                            const Coefficients& coefficients) {
  return streamed(gradients * type * 2, gpu, coefficients);
}

}  // namespace zeroplan
