#include "model/cost/device_memory.hpp"

namespace zeroplan {

DeviceMemoryCost device_memory_cost(const Coefficients& c) {
  return {Seconds::of(c[Coefficient::gpu_allocation_call_seconds]),
          BytesPerSecond::of(c[Coefficient::gpu_allocation_rate])};
}

}  // namespace zeroplan
