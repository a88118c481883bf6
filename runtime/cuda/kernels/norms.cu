// RMSNorm and layer norm: a block a row forward; backward a block for many rows, which sums its
// part of the weight's gradient meanwhile. The formulas stand in runtime/kernels/cpu_norms.cpp.
#include <algorithm>

#include "runtime/cuda/kernels/groups.cuh"

namespace zeroplan::runtime::cuda {
namespace {

constexpr std::int64_t kParts = 256;  // blocks of backward: parts of the weight's gradient
constexpr std::size_t kScratch = 32 * sizeof(float);
// Sums of weight gradients stay in shared memory up to this size, in the workspace beyond.
constexpr std::int64_t kSharedSums = 44 * 1024;

template <typename T>
struct Forward {
  T* y;
  float *mean, *rstd;
  const T *x, *weight, *bias;
  std::int64_t columns, packs;
  float epsilon;
};

template <typename T, bool kCentered>
__global__ void __launch_bounds__(512) forward_kernel(Forward<T> p) {
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const std::int64_t row = blockIdx.x;
  const T* x = p.x + row * p.columns;
  T* y = p.y + row * p.columns;
  const auto n = static_cast<float>(p.columns);
  float mean = 0.0F;
  if constexpr (kCentered) {
    float sum = 0.0F;
    for_columns<T>(p.columns, p.packs, [&](auto width, std::int64_t i) {
      const auto values = read<decltype(width)::kCount>(x + i);
#pragma unroll
      for (const float value : values.at) sum += value;
    });
    mean = block_sum(sum, scratch) / n;
  }
  float squares = 0.0F;
  for_columns<T>(p.columns, p.packs, [&](auto width, std::int64_t i) {
    const auto values = read<decltype(width)::kCount>(x + i);
#pragma unroll
    for (const float value : values.at) squares += (value - mean) * (value - mean);
  });
  const float rstd = 1.0F / sqrtf(block_sum(squares, scratch) / n + p.epsilon);
  for_columns<T>(p.columns, p.packs, [&](auto width, std::int64_t i) {
    constexpr int kCount = decltype(width)::kCount;
    Floats<kCount> values = read<kCount>(x + i);
    const Floats<kCount> weight = read<kCount>(p.weight + i);
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      values.at[k] = (values.at[k] - mean) * rstd * weight.at[k];
    }
    if constexpr (kCentered) {
      const Floats<kCount> bias = read<kCount>(p.bias + i);
#pragma unroll
      for (int k = 0; k < kCount; ++k) values.at[k] += bias.at[k];
    }
    write(y + i, values);
  });
  if (threadIdx.x == 0) {
    p.rstd[row] = rstd;
    if constexpr (kCentered) p.mean[row] = mean;
  }
}

template <typename T>
struct Backward {
  T* d_x;
  const T *d_y, *x;
  const float *mean, *rstd;
  const T* weight;
  float* partial;  // {kinds of sums, parts, columns}: of the weight, of the bias
  std::int64_t rows, columns, packs;
  bool accumulate, sums_shared;
};

template <typename T, bool kCentered>
__global__ void __launch_bounds__(512) backward_kernel(Backward<T> p) {
  auto* scratch = reinterpret_cast<float*>(shared_memory());
  const std::int64_t n = p.columns;
  float* weight_part = p.partial + blockIdx.x * n;
  float* bias_part = p.partial + (std::int64_t{gridDim.x} + blockIdx.x) * n;
  // Each thread adds to the columns that for_columns gives it, and to no other.
  float* weight_sum = p.sums_shared ? scratch + 32 : weight_part;
  float* bias_sum = p.sums_shared ? weight_sum + n : bias_part;
  for_columns<T>(n, p.packs, [&](auto width, std::int64_t i) {
    for (int k = 0; k < decltype(width)::kCount; ++k) {
      weight_sum[i + k] = 0.0F;
      if constexpr (kCentered) bias_sum[i + k] = 0.0F;
    }
  });
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T* x = p.x + row * n;
    const T* d_y = p.d_y + row * n;
    const float mean = kCentered ? p.mean[row] : 0.0F;
    const float rstd = p.rstd[row];
    float sum = 0.0F;
    float product = 0.0F;
    for_columns<T>(n, p.packs, [&](auto width, std::int64_t i) {
      constexpr int kCount = decltype(width)::kCount;
      const Floats<kCount> d = read<kCount>(d_y + i);
      const Floats<kCount> in = read<kCount>(x + i);
      const Floats<kCount> weight = read<kCount>(p.weight + i);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const float z = (in.at[k] - mean) * rstd;
        const float g = d.at[k] * weight.at[k];
        product += g * z;
        weight_sum[i + k] += d.at[k] * z;
        if constexpr (kCentered) {
          sum += g;
          bias_sum[i + k] += d.at[k];
        }
      }
    });
    const float mean_gz = block_sum(product, scratch) / static_cast<float>(n);
    const float mean_g = kCentered ? block_sum(sum, scratch) / static_cast<float>(n) : 0.0F;
    T* d_x = p.d_x + row * n;
    for_columns<T>(n, p.packs, [&](auto width, std::int64_t i) {
      constexpr int kCount = decltype(width)::kCount;
      Floats<kCount> d = read<kCount>(d_y + i);
      const Floats<kCount> in = read<kCount>(x + i);
      const Floats<kCount> weight = read<kCount>(p.weight + i);
      Floats<kCount> before{};
      if (p.accumulate) before = read<kCount>(d_x + i);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const float z = (in.at[k] - mean) * rstd;
        d.at[k] = before.at[k] + rstd * (d.at[k] * weight.at[k] - z * mean_gz - mean_g);
      }
      write(d_x + i, d);
    });
  }
  if (!p.sums_shared) return;
  for_columns<T>(n, p.packs, [&](auto width, std::int64_t i) {
    for (int k = 0; k < decltype(width)::kCount; ++k) {
      weight_part[i + k] = weight_sum[i + k];
      if constexpr (kCentered) bias_part[i + k] = bias_sum[i + k];
    }
  });
}

template <typename T, bool kCentered>
void forward(const Run& run) {
  Forward<T> p{};
  p.y = run.at<T>(0);
  p.mean = kCentered ? run.at<float>(1) : nullptr;
  p.rstd = run.at<float>(kCentered ? 2 : 1);
  p.x = run.at<T>(kCentered ? 3 : 2);
  p.weight = run.at<T>(kCentered ? 4 : 3);
  p.bias = kCentered ? run.at<T>(5) : nullptr;
  p.columns = run.call.columns;
  p.packs = packable<T>(p.columns, p.y, p.x, p.weight, p.bias) ? p.columns / kPack<T> : 0;
  p.epsilon = static_cast<float>(run.call.epsilon);
  launch(forward_kernel<T, kCentered>,
         grid_of(run.call.rows),
         threads_for_row<T>(p.columns),
         kScratch,
         run.stream,
         p);
}

template <typename T, bool kCentered>
void backward(const Run& run) {
  constexpr std::size_t kFirst = kCentered ? 3 : 2;
  constexpr std::int64_t kKinds = kCentered ? 2 : 1;
  const std::int64_t n = run.call.columns;
  Backward<T> p{};
  p.d_x = run.at<T>(0);
  p.d_y = run.at<T>(kFirst);
  p.x = run.at<T>(kFirst + 1);
  p.mean = kCentered ? run.at<float>(kFirst + 2) : nullptr;
  p.rstd = run.at<float>(kFirst + (kCentered ? 3 : 2));
  p.weight = run.at<T>(kFirst + (kCentered ? 4 : 3));
  p.partial = reinterpret_cast<float*>(workspace(run.stream));
  p.rows = run.call.rows;
  p.columns = n;
  p.packs = packable<T>(n, p.d_x, p.d_y, p.x, p.weight) ? n / kPack<T> : 0;
  p.accumulate = run.call.accumulate;
  const std::int64_t sums = kKinds * n * static_cast<std::int64_t>(sizeof(float));
  p.sums_shared = sums <= kSharedSums;
  ZP_CHECK(sums <= kWorkspace, "a row of a norm fits the workspace");
  const std::int64_t parts = std::min({kParts, p.rows, kWorkspace / sums});
  launch(backward_kernel<T, kCentered>,
         grid_of(parts),
         threads_for_row<T>(n),
         kScratch + static_cast<std::size_t>(p.sums_shared ? sums : 0),
         run.stream,
         p);
  sum_partials(run.stream, run.at<T>(1), p.partial, parts, n, false);
  if constexpr (kCentered) {
    sum_partials(run.stream, run.at<T>(2), p.partial + parts * n, parts, n, false);
  }
}

}  // namespace

template <typename T>
void run_norm(const Run& run) {
  switch (run.call.kernel) {
    case Kernel::rms_norm_forward:
      return forward<T, false>(run);
    case Kernel::rms_norm_backward:
      return backward<T, false>(run);
    case Kernel::layer_norm_forward:
      return forward<T, true>(run);
    default:  // layer_norm_backward
      return backward<T, true>(run);
  }
}

ZP_CUDA_KERNELS(run_norm);

}  // namespace zeroplan::runtime::cuda
