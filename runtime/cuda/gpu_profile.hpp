// The GPU's part of `zeroplan profile`: what this machine's first GPU and the ways to and between
// its GPUs reach. No CUDA header is needed to include this.
#pragma once

#include <functional>
#include <string>

#include "runtime/profile/gpu_profile.hpp"

namespace zeroplan::runtime::cuda {

// Kernels and copies are timed by CUDA's events, with CUPTI's sum of kernel times beside them where
// it is there; launches and allocations by the host's clock. A part that fails is a note, and the
// others go on. Takes at most scale.free_share of the GPU's free memory at a time. To be called
// once in a process, before anything else makes a context: its size is what NVML counts more.
// Throws DeviceError where the GPU cannot be used at all. Precondition: find_gpus() found one.
GpuFindings measure_gpus(const GpuScale& scale,
                         const std::function<void(const std::string&)>& progress);

}  // namespace zeroplan::runtime::cuda
