// Where the program is built without NCCL.
#include "base/check.hpp"
#include "runtime/cuda/nccl_communicator.hpp"

namespace zeroplan::runtime::cuda {

bool built_with_nccl() { return false; }

std::string nccl_version() { return ""; }

std::unique_ptr<Communicator> nccl_communicator(Communicator&,
                                                CudaDevice&,
                                                std::chrono::milliseconds) {
  ZP_CHECK(false, "this program was built without NCCL");
}

}  // namespace zeroplan::runtime::cuda
