// GPU memory that is used outside PyTorch's allocator: the CUDA context with the loaded kernels,
// and NCCL's buffers. nvidia-smi shows both, torch.cuda.memory_allocated() neither; what is left of
// the GPU's capacity after them is what the allocator can reserve.
//
// Units: Bytes, on one GPU. The numbers are coefficients, with their sources.
#pragma once

#include <cstdint>

#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"
#include "model/software.hpp"

namespace zeroplan {

struct UncertainBytes {
  Bytes value;
  double relative_sd = 0.0;  // one standard deviation over the value
};

// The CUDA context of one training process and the kernels it has loaded. Zero for CPU ranks.
UncertainBytes cuda_context(const Gpu& gpu, Version torch, const Coefficients& coefficients);

// What a rank's communicators span. One communicator is one process group that has been used.
struct CommunicatorUse {
  std::int64_t ranks = 1;          // of the largest group
  std::int64_t nodes = 1;          // it spans
  std::int64_t communicators = 1;  // process groups of a rank that ran a collective
  // Beside these: groups without two ranks in a node, and pairs that only send and receive.
  std::int64_t light_communicators = 0;
  std::int64_t all_to_all_ranks = 1;  // expert or sequence parallelism: each is a peer
};

// NCCL's channel buffers and connections. Zero for one rank and for CPU ranks.
UncertainBytes nccl_overhead(const Gpu& gpu,
                             Topology topology,
                             const CommunicatorUse& use,
                             const Coefficients& coefficients);

}  // namespace zeroplan
