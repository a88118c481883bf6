// One operation on each element of flat memory: by packs of 16 bytes where everything is aligned,
// one by one otherwise and at the end.
//
// An operation is a struct with kCount, the elements of a pack, and at<kElements>(i), which reads
// all it needs of elements [i, i + kElements) before it writes them: in place is allowed.
#pragma once

#include <algorithm>

#include "runtime/cuda/kernels/numbers.cuh"

namespace zeroplan::runtime::cuda {

inline constexpr int kEachThreads = 256;
// Blocks of a grid that goes round: enough for any GPU of today to be full several times over.
inline constexpr std::int64_t kEachBlocks = 4096;

template <typename Operation>
__global__ void __launch_bounds__(kEachThreads)
    each_kernel(const __grid_constant__ Operation operation,
                std::int64_t count,
                std::int64_t packs) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = first; i < packs; i += stride) {
    operation.template at<Operation::kCount>(i * Operation::kCount);
  }
  for (std::int64_t i = packs * Operation::kCount + first; i < count; i += stride) {
    operation.template at<1>(i);
  }
}

// by_packs: all of the operation's pointers are aligned to its packs.
template <typename Operation>
void for_each(Stream stream, const Operation& operation, std::int64_t count, bool by_packs) {
  if (count == 0) return;
  const std::int64_t packs = by_packs ? count / Operation::kCount : 0;
  const std::int64_t turns = packs > 0 ? packs : count;
  const std::int64_t blocks = std::min(kEachBlocks, divide_up(turns, kEachThreads));
  launch(each_kernel<Operation>, grid_of(blocks), kEachThreads, 0, stream, operation, count, packs);
}

}  // namespace zeroplan::runtime::cuda
