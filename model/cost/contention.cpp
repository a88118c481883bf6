#include "model/cost/contention.hpp"

#include <algorithm>
#include <cmath>

namespace zeroplan {

double kernel_slowdown(KernelBound bound,
                       BytesPerSecond wire_rate,
                       const Gpu& gpu,
                       const Coefficients& c) {
  switch (bound) {
    case KernelBound::none:
      return 1.0;
    case KernelBound::compute:
      return 1.0 + c[Coefficient::compute_slowdown_under_communication];
    case KernelBound::memory: {
      const double taken = c[Coefficient::collective_memory_passes] * wire_rate.value() /
                           gpu.memory_bandwidth.value.value();
      return 1.0 / (1.0 - std::min(taken, 0.5));
    }
  }
  return 1.0;
}

double collective_slowdown(const Coefficients& c) {
  return 1.0 + c[Coefficient::collective_slowdown_under_compute];
}

double scaling_factor(std::int64_t nodes, const Coefficients& c) {
  return 1.0 + c[Coefficient::scaling_loss_per_doubling] *
                   std::log2(static_cast<double>(std::max<std::int64_t>(1, nodes)));
}

}  // namespace zeroplan
