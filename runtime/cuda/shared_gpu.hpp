// Ranks as threads that share one GPU: collectives on its memory by kernels and copies, ordered by
// events between the ranks' streams. Sums in the order of the ranks, rounded once, as everywhere
// but in NCCL. For sources of runtime/cuda alone.
#pragma once

#include <chrono>
#include <memory>

#include "runtime/collectives/communicator.hpp"
#include "runtime/cuda/cuda_device.hpp"

namespace zeroplan::runtime::cuda {

class SharedGpu;  // what the ranks of one group share

std::shared_ptr<SharedGpu> shared_gpu(int ranks, std::chrono::milliseconds patience);

// What is in host memory goes through `host`, whose rank this is. Host and device outlive it.
std::unique_ptr<Communicator> shared_gpu_rank(std::shared_ptr<SharedGpu> shared,
                                              Communicator& host,
                                              CudaDevice& device);

}  // namespace zeroplan::runtime::cuda
