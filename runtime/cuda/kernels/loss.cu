// Cross entropy: the logarithm of a row's sum in one pass over the logits, its gradient in a
// second. Means over labelled tokens are taken by one block, in a fixed order; of a chunk of the
// rows too, which counts the labels of all.
#include <cfloat>

#include "runtime/cuda/kernels/groups.cuh"

namespace zeroplan::runtime::cuda {
namespace {

constexpr unsigned kThreads = 256;

// exp(x - largest) summed over what was seen. Nothing seen: -infinity and 0.
struct Online {
  float largest, sum;
};

__device__ __forceinline__ Online merged(Online a, Online b) {
  const float most = fmaxf(a.largest, b.largest);
  if (most == -INFINITY) return {most, a.sum + b.sum};
  return {most, a.sum * expf(a.largest - most) + b.sum * expf(b.largest - most)};
}

// Where a row's packs begin and end: rows of an odd vocabulary begin anywhere.
struct Split {
  std::int64_t head, packs;
};
template <typename T>
__device__ __forceinline__ Split split(const T* row, std::int64_t n) {
  const auto past =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
  std::int64_t head = past == 0 ? 0 : kPack<T> - past;
  if (head > n) head = n;
  return {head, (n - head) / kPack<T>};
}
template <typename T, typename Body>
__device__ __forceinline__ void for_split(Split at, std::int64_t n, Body&& body) {
  for (std::int64_t i = threadIdx.x; i < at.head; i += blockDim.x) body(Width<1>{}, i);
  const std::int64_t rest = n - at.head;
  for_columns<T>(rest, at.packs, [&](auto width, std::int64_t i) { body(width, at.head + i); });
}

template <typename T>
__global__ void __launch_bounds__(512)
    lse_kernel(float* lse, const T* logits, std::int64_t columns) {
  auto* scratch = reinterpret_cast<Online*>(shared_memory());
  const T* row = logits + blockIdx.x * columns;
  Online mine{-INFINITY, 0.0F};
  for_split<T>(split(row, columns), columns, [&](auto width, std::int64_t i) {
    constexpr int kCount = decltype(width)::kCount;
    const Floats<kCount> values = read<kCount>(row + i);
    float most = values.at[0];
#pragma unroll
    for (int k = 1; k < kCount; ++k) most = fmaxf(most, values.at[k]);
    if (most > mine.largest) {
      mine.sum *= expf(mine.largest - most);
      mine.largest = most;
    }
#pragma unroll
    for (const float value : values.at) {
      // Nothing but -infinity so far: its exponential is 0; NaN stays NaN.
      mine.sum += value == -INFINITY ? 0.0F : expf(value - mine.largest);
    }
  });
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const Online other{__shfl_xor_sync(kAllLanes, mine.largest, lanes),
                       __shfl_xor_sync(kAllLanes, mine.sum, lanes)};
    mine = merged(mine, other);
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) mine = merged(mine, scratch[warp]);
  lse[blockIdx.x] = mine.largest + logf(mine.sum);
}

// By one block: how many tokens have a label, at least 1.
__device__ __forceinline__ double labelled(const std::int64_t* labels,
                                           std::int64_t all,
                                           double* scratch) {
  double count = 0.0;
  for (std::int64_t row = threadIdx.x; row < all; row += blockDim.x) {
    if (labels[row] >= 0) count += 1.0;
  }
  count = block_sum(count, scratch);
  return count > 1.0 ? count : 1.0;
}

template <typename T>
struct Mean {
  float* loss;
  const float* lse;
  const T* logits;
  const std::int64_t* labels;     // of all rows of the loss
  std::int64_t all, first, rows;  // `rows` of them from `first` on
  std::int64_t columns;
  bool accumulate;
};

// One block: the rows' part of the mean over labelled tokens.
template <typename T>
__global__ void __launch_bounds__(1024) mean_kernel(Mean<T> p) {
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  double total = 0.0;
  for (std::int64_t row = threadIdx.x; row < p.rows; row += blockDim.x) {
    const std::int64_t label = p.labels[p.first + row];
    if (label < 0) continue;
    total += static_cast<double>(p.lse[row] - value_of(p.logits[row * p.columns + label]));
  }
  total = block_sum(total, scratch);
  const double count = labelled(p.labels, p.all, scratch);
  if (threadIdx.x != 0) return;
  const auto part = static_cast<float>(total / count);
  *p.loss = p.accumulate ? *p.loss + part : part;
}

// One block: scale / the number of labelled tokens.
__global__ void __launch_bounds__(1024)
    factor_kernel(float* factor, const std::int64_t* labels, std::int64_t all, double scale) {
  auto* scratch = reinterpret_cast<double*>(shared_memory());
  const double count = labelled(labels, all, scratch);
  if (threadIdx.x == 0) *factor = static_cast<float>(scale / count);
}

template <typename T>
struct Backward {
  T* d_logits;
  const T* logits;
  const float* lse;
  const std::int64_t* labels;
  const float* factor;
  std::int64_t columns;
  bool by_packs;
};

template <typename T>
__global__ void __launch_bounds__(512) backward_kernel(Backward<T> p) {
  const std::int64_t row = blockIdx.x;
  const T* x = p.logits + row * p.columns;
  T* d = p.d_logits + row * p.columns;
  const std::int64_t label = p.labels[row];
  const float lse = p.lse[row];
  const float factor = *p.factor;
  const Split at = p.by_packs ? split(x, p.columns) : Split{0, 0};
  for_split<T>(at, p.columns, [&](auto width, std::int64_t i) {
    constexpr int kCount = decltype(width)::kCount;
    Floats<kCount> values{};
    if (label >= 0) {
      values = read<kCount>(x + i);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const float target = i + k == label ? 1.0F : 0.0F;
        values.at[k] = (expf(values.at[k] - lse) - target) * factor;
      }
    }
    write(d + i, values);
  });
}

template <typename T>
void forward(const Run& run) {
  const KernelCall& call = run.call;
  float* lse = run.at<float>(1);
  const T* logits = run.at<T>(2);
  launch(lse_kernel<T>,
         grid_of(call.rows),
         threads_for_row<T>(call.columns),
         32 * sizeof(Online),
         run.stream,
         lse,
         logits,
         call.columns);
  Mean<T> p{};
  p.loss = run.at<float>(0);
  p.lse = lse;
  p.logits = logits;
  p.labels = run.at<std::int64_t>(3);
  p.all = labels_of(call);
  p.first = call.chunk.first;
  p.rows = call.rows;
  p.columns = call.columns;
  p.accumulate = call.accumulate;
  launch(mean_kernel<T>, 1, kThreads, 32 * sizeof(double), run.stream, p);
}

template <typename T>
void backward(const Run& run) {
  const KernelCall& call = run.call;
  auto* factor = reinterpret_cast<float*>(workspace(run.stream));
  Backward<T> p{};
  p.d_logits = run.at<T>(0);
  p.logits = run.at<T>(1);
  p.lse = run.at<float>(2);
  const std::int64_t* labels = run.at<std::int64_t>(3);
  p.labels = labels + call.chunk.first;
  p.factor = factor;
  p.columns = call.columns;
  p.by_packs = reinterpret_cast<std::uintptr_t>(p.d_logits) % 16 ==
               reinterpret_cast<std::uintptr_t>(p.logits) % 16;
  launch(factor_kernel,
         1,
         kThreads,
         32 * sizeof(double),
         run.stream,
         factor,
         labels,
         labels_of(call),
         call.scale);
  launch(
      backward_kernel<T>, grid_of(call.rows), threads_for_row<T>(call.columns), 0, run.stream, p);
}

}  // namespace

template <typename T>
void run_loss(const Run& run) {
  if (run.call.kernel == Kernel::cross_entropy_forward) return forward<T>(run);
  backward<T>(run);
}

ZP_CUDA_KERNELS(run_loss);

}  // namespace zeroplan::runtime::cuda
