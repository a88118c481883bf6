// What PyTorch's reduction kernel takes of the GPU beside its result: where columns are summed
// over many rows, several thread blocks share an output, and their partial sums meet in global
// memory. The buffer lives for the call; for a norm's or a bias's gradient it is often larger than
// the tensor that is summed.
//
// Source: ATen/native/cuda/Reduce.cuh (setReduceConfig, ReduceConfig::global_memory_size,
// gpu_reduce_kernel), the same in torch 2.2 to 2.11; sums accumulate in fp32.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "model/dtype.hpp"

namespace zeroplan {

// The GPU as the kernel's launch knows it; without multiprocessors nothing is taken.
struct ReductionGpu {
  std::int64_t multiprocessors = 0;
  std::int64_t threads_per_multiprocessor = 2048;
};

// Bytes of the buffer where a contiguous matrix of that dtype is summed over its rows.
Bytes row_sum_buffer(const ReductionGpu& gpu, std::int64_t rows, std::int64_t columns, DType dtype);

}  // namespace zeroplan
