// NCCL between GPUs, each rank on its own. For sources of runtime/cuda alone.
//
// NCCL sums in an order of its own: losses agree with other communicators within rounding, not to
// the bit. Its calls do not block; while the host waits for the GPU it asks NCCL and the group
// whether anything will still come, and aborts the communicator where not.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "runtime/collectives/communicator.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace zeroplan::runtime::cuda {

bool built_with_nccl();
std::string nccl_version();  // "NCCL 2.28.9"; empty where there is none

// Called by all ranks of `host`, which carries NCCL's id, what is in host memory, and failures.
// Host and device outlive it. Throws CollectiveError where NCCL does not come up.
std::unique_ptr<Communicator> nccl_communicator(Communicator& host,
                                                CudaDevice& device,
                                                std::chrono::milliseconds patience);

}  // namespace zeroplan::runtime::cuda
