#include "model/graph/reduction_buffer.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace zeroplan {
namespace {

constexpr std::int64_t kThreads = 512;  // MAX_REDUCE_THREADS
constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kWidestVector = 4;
constexpr std::int64_t kLeastPerThread = 16;
constexpr std::int64_t kMostPerThread = 256;

std::int64_t power_of_two_within(std::int64_t size, std::int64_t most) {
  if (size >= most) return most;
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size)));
}

// Columns that a thread sums side by side: get_output_vec_size.
std::int64_t columns_a_thread(std::int64_t columns) {
  std::int64_t vector = kWidestVector;
  while (columns % vector != 0) vector /= 2;
  return vector;
}

}  // namespace

Bytes row_sum_buffer(const ReductionGpu& gpu,
                     std::int64_t rows,
                     std::int64_t columns,
                     DType dtype) {
  if (gpu.multiprocessors <= 0 || rows <= 1 || columns <= 0) return Bytes::zero();
  // Beyond 32-bit offsets the larger dimension is halved, and the halves run one after the other.
  constexpr std::int64_t kMostBytes = std::numeric_limits<std::int32_t>::max();
  while (rows > 1 && rows * columns * width(dtype) > kMostBytes) rows = ceil_div(rows, 2);
  const std::int64_t vector = columns_a_thread(columns);
  const std::int64_t most = kThreads / vector;
  const std::int64_t wide = power_of_two_within(columns / vector, most);
  const std::int64_t high = power_of_two_within(rows, most);
  const std::int64_t block_height = std::min(high, most / std::min(wide, kWarp));
  const std::int64_t block_width = std::min(wide, most / block_height);
  // A thread's rows decide whether the warps of a block share an output, and then the blocks.
  if (rows < std::min(block_height * kLeastPerThread, kMostPerThread)) return Bytes::zero();
  const std::int64_t per_thread = ceil_div(rows, block_height);
  const std::int64_t grid = ceil_div(columns / vector, block_width);
  const std::int64_t target =
      gpu.multiprocessors * (gpu.threads_per_multiprocessor / (block_width * block_height));
  if (per_thread < kMostPerThread || grid > target) return Bytes::zero();
  const std::int64_t blocks =
      std::max(std::min(ceil_div(target, grid), ceil_div(per_thread, kLeastPerThread)),
               ceil_div(per_thread, kMostPerThread));
  if (blocks <= 1) return Bytes::zero();
  return Bytes::of(width(DType::fp32) * columns * blocks * block_width * vector);
}

}  // namespace zeroplan
