// Linear layers: three matrix products, and the bias's gradient as sums of columns.
#include <algorithm>

#include "runtime/cuda/kernels/groups.cuh"

namespace zeroplan::runtime::cuda {

GemmCall gemm_of(const RowMajorProduct& product) {
  GemmCall call;
  call.m = product.columns;
  call.n = product.rows;
  call.k = product.inner;
  call.transpose_a = product.right.transposed;
  call.transpose_b = product.left.transposed;
  call.lda = product.right.transposed ? product.inner : product.columns;
  call.ldb = product.left.transposed ? product.rows : product.inner;
  call.ldc = product.columns;
  call.a = product.right.data;
  call.b = product.left.data;
  call.c = product.c;
  call.bias = product.bias;
  call.accumulate = product.accumulate;
  call.dtype = product.dtype;
  return call;
}

namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kParts = 256;

// Columns of part p: the sums of its rows, which are neighbours. A thread has kCount columns.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads) column_sums_kernel(
    float* partial, const T* data, std::int64_t rows, std::int64_t columns, std::int64_t each) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
  if (column >= columns) return;
  const std::int64_t first = blockIdx.y * each;
  const std::int64_t last = first + each < rows ? first + each : rows;
  Floats<kCount> sum{};
  for (std::int64_t row = first; row < last; ++row) {
    const Floats<kCount> values = read<kCount>(data + row * columns + column);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum.at[k] += values.at[k];
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) partial[blockIdx.y * columns + column + k] = sum.at[k];
}

constexpr unsigned kColumns = 32;
constexpr unsigned kSlices = kThreads / kColumns;

// A block has kColumns columns; slice s of its threads sums parts s, s + kSlices, ...
template <typename T>
__global__ void __launch_bounds__(kThreads) sum_partials_kernel(
    T* to, const float* partial, std::int64_t parts, std::int64_t columns, bool accumulate) {
  auto* slices = reinterpret_cast<double*>(shared_memory());
  const unsigned lane = threadIdx.x % kColumns;
  const unsigned slice = threadIdx.x / kColumns;
  const std::int64_t column = std::int64_t{blockIdx.x} * kColumns + lane;
  double sum = 0.0;
  if (column < columns) {
    for (std::int64_t part = slice; part < parts; part += kSlices) {
      sum += static_cast<double>(partial[part * columns + column]);
    }
  }
  slices[threadIdx.x] = sum;
  __syncthreads();
  if (slice != 0 || column >= columns) return;
  for (unsigned other = 1; other < kSlices; ++other) sum += slices[other * kColumns + lane];
  const float before = accumulate ? value_of(to[column]) : 0.0F;
  to[column] = stored<T>(before + static_cast<float>(sum));
}

template <typename T>
void backward_bias(const Run& run) {
  const std::int64_t rows = run.call.rows;
  const std::int64_t columns = run.call.columns;
  const T* data = run.at<T>(1);
  auto* partial = reinterpret_cast<float*>(workspace(run.stream));
  const std::int64_t fit = kWorkspace / (columns * static_cast<std::int64_t>(sizeof(float)));
  ZP_CHECK(fit >= 1, "a row of sums fits the workspace");
  const std::int64_t each = divide_up(rows, std::min({kParts, rows, fit}));
  const std::int64_t parts = divide_up(rows, each);
  const bool by_packs = packable<T>(columns, data);
  const std::int64_t threads = by_packs ? columns / kPack<T> : columns;
  launch(by_packs ? column_sums_kernel<T, kPack<T>> : column_sums_kernel<T, 1>,
         grid_of(divide_up(threads, kThreads), parts),
         kThreads,
         0,
         run.stream,
         partial,
         data,
         rows,
         columns,
         each);
  sum_partials(run.stream, run.at<T>(0), partial, parts, columns, run.call.accumulate);
}

RowMajor matrix(const Run& run, std::size_t operand, bool transposed = false) {
  return {run.operands[operand].data, transposed};
}

// y[T,n] = x[T,k] weight[n,k]^T
void forward(const Run& run, RowMajorProduct product) {
  product.left = matrix(run, 1);
  product.right = matrix(run, 2, !run.call.transposed);
  product.columns = run.call.columns;
  product.inner = run.call.inner;
  product.bias = run.operands[3].data;
  run.gemm.run(gemm_of(product));
}

// d_x[T,k] = d_y[T,n] weight[n,k]
void backward_input(const Run& run, RowMajorProduct product) {
  product.left = matrix(run, 1);
  product.right = matrix(run, 2, run.call.transposed);
  product.columns = run.call.inner;
  product.inner = run.call.columns;
  run.gemm.run(gemm_of(product));
}

// d_weight[n,k] = d_y[T,n]^T x[T,k]; {k, n} = x^T d_y.
void backward_weight(const Run& run, RowMajorProduct product) {
  const bool swapped = run.call.transposed;
  product.left = matrix(run, swapped ? 2 : 1, true);
  product.right = matrix(run, swapped ? 1 : 2);
  product.rows = swapped ? run.call.inner : run.call.columns;
  product.columns = swapped ? run.call.columns : run.call.inner;
  product.inner = run.call.rows;
  run.gemm.run(gemm_of(product));
}

}  // namespace

template <typename T>
void sum_partials(Stream stream,
                  T* to,
                  const float* partial,
                  std::int64_t parts,
                  std::int64_t columns,
                  bool accumulate) {
  launch(sum_partials_kernel<T>,
         grid_of(divide_up(columns, kColumns)),
         kThreads,
         kThreads * sizeof(double),
         stream,
         to,
         partial,
         parts,
         columns,
         accumulate);
}
template void sum_partials(Stream, float*, const float*, std::int64_t, std::int64_t, bool);
template void sum_partials(Stream, Bf16*, const float*, std::int64_t, std::int64_t, bool);
template void sum_partials(Stream, Fp16*, const float*, std::int64_t, std::int64_t, bool);

template <typename T>
void run_linear(const Run& run) {
  RowMajorProduct product;
  product.c = run.operands[0].data;
  product.rows = run.call.rows;
  product.accumulate = run.call.accumulate;
  product.dtype = run.operands[0].dtype;
  switch (run.call.kernel) {
    case Kernel::linear_forward:
      return forward(run, product);
    case Kernel::linear_backward_input:
      return backward_input(run, product);
    case Kernel::linear_backward_weight:
      return backward_weight(run, product);
    default:  // linear_backward_bias
      return backward_bias<T>(run);
  }
}

ZP_CUDA_KERNELS(run_linear);

}  // namespace zeroplan::runtime::cuda
