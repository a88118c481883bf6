// Where the program is built without CUDA.
#include "base/check.hpp"
#include "runtime/cuda/hardware.hpp"

namespace zeroplan::runtime::cuda {

Gpus find_gpus() { return {.built = false, .found = {}, .problem = "built without CUDA"}; }

std::string built_with() { return "without CUDA"; }

std::string attention_computed_by() { return {}; }

std::function<RankHardware(Communicator&, int, bool)> hardware(const RankPlacement&) {
  ZP_CHECK(false, "this program was built without CUDA");
}

}  // namespace zeroplan::runtime::cuda
