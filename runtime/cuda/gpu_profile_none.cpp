// Where the program is built without CUDA.
#include "base/check.hpp"
#include "runtime/cuda/gpu_profile.hpp"

namespace zeroplan::runtime::cuda {

GpuFindings measure_gpus(const GpuScale&, const std::function<void(const std::string&)>&) {
  ZP_CHECK(false, "this program was built without CUDA");
}

}  // namespace zeroplan::runtime::cuda
