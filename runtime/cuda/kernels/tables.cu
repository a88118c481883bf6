// Lookups in tables, their gradients, and rotary positions.
#include <cmath>

#include "runtime/cuda/kernels/each.cuh"
#include "runtime/cuda/kernels/groups.cuh"

namespace zeroplan::runtime::cuda {
namespace {

constexpr unsigned kThreads = 256;

// A block a token: copies bytes, whatever the format.
template <typename T>
__global__ void __launch_bounds__(512) embedding_kernel(
    T* out, const std::int64_t* ids, const T* table, std::int64_t n, std::int64_t packs) {
  const std::int64_t row = blockIdx.x;
  const T* from = table + ids[row] * n;
  T* to = out + row * n;
  for_columns<T>(n, packs, [&](auto width, std::int64_t i) {
    using Whole = Pack<T, decltype(width)::kCount>;
    *reinterpret_cast<Whole*>(to + i) = *reinterpret_cast<const Whole*>(from + i);
  });
}

// Of each token the next one of the same id (-1: none), and whether it is the id's first. A thread
// has a token and compares it with all, tile by tile: T^2 comparisons, of numbers in shared memory.
struct Chain {
  std::int32_t *next, *first;
  const std::int64_t* ids;
  std::int64_t rows;
};
__global__ void __launch_bounds__(kThreads) chain_kernel(Chain p) {
  auto* tile = reinterpret_cast<std::int32_t*>(shared_memory());
  const std::int64_t token = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool there = token < p.rows;
  const auto id = static_cast<std::int32_t>(there ? p.ids[token] : 0);
  std::int32_t next = -1;
  bool first = true;
  for (std::int64_t begin = 0; begin < p.rows; begin += kThreads) {
    const std::int64_t mine = begin + threadIdx.x;
    __syncthreads();  // the tile before has been read
    tile[threadIdx.x] = mine < p.rows ? static_cast<std::int32_t>(p.ids[mine]) : -1;
    __syncthreads();
#pragma unroll 8
    for (unsigned i = 0; i < kThreads; ++i) {
      if (tile[i] != id) continue;
      const std::int64_t other = begin + i;
      first = first && other >= token;
      if (other > token && next < 0) next = static_cast<std::int32_t>(other);
    }
  }
  if (!there) return;
  p.next[token] = next;
  p.first[token] = first ? 1 : 0;
}

template <typename T>
struct EmbeddingBackward {
  T* d_table;
  const std::int64_t* ids;
  const T* d_out;
  const std::int32_t *next, *first;
  std::int64_t columns;
};

// A block a token and kThreads columns. The block of the first token of an id sums all tokens of
// that id, in their order: no atomics, one rounding, the CPU's bits.
template <typename T>
__global__ void __launch_bounds__(kThreads) embedding_backward_kernel(EmbeddingBackward<T> p) {
  const std::int64_t token = blockIdx.x;
  const std::int64_t column = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (p.first[token] == 0 || column >= p.columns) return;
  T* to = p.d_table + p.ids[token] * p.columns + column;
  float sum = value_of(*to);
  for (std::int64_t row = token; row >= 0;) {
    const std::int64_t next = p.next[row];  // asked for beside the row
    sum += value_of(p.d_out[row * p.columns + column]);
    row = next;
  }
  *to = stored<T>(sum);
}

// x[row] += table[row % period]
template <typename T>
struct AddPosition {
  static constexpr int kCount = kPack<T>;
  T* x;
  const T* table;
  std::int64_t whole;  // period * columns
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> values = read<kElements>(x + i);
    const Floats<kElements> position = read<kElements>(table + i % whole);
#pragma unroll
    for (int k = 0; k < kElements; ++k) values.at[k] += position.at[k];
    write(x + i, values);
  }
};

// d_table[i] += the sum over sequences of d_x[sequence][i], in their order.
template <typename T>
struct SumPositions {
  static constexpr int kCount = kPack<T>;
  T* d_table;
  const T* d_x;
  std::int64_t whole, count;
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> sum = read<kElements>(d_table + i);
    for (std::int64_t from = i; from < count; from += whole) {
      const Floats<kElements> values = read<kElements>(d_x + from);
#pragma unroll
      for (int k = 0; k < kElements; ++k) sum.at[k] += values.at[k];
    }
    write(d_table + i, sum);
  }
};

constexpr std::int64_t kMostPairs = 128;
struct Frequencies {
  float at[kMostPairs];
};

template <typename T>
struct Rotary {
  T* x;
  std::int64_t rows, sequence, heads, half;
  float direction;
  Frequencies frequency;
};

// Grid: rows, by blocks of `lines` rows; a thread has one pair of every head of one row.
template <typename T>
__global__ void __launch_bounds__(kThreads) rotary_kernel(const __grid_constant__ Rotary<T> p) {
  const std::int64_t lines = kThreads / p.half;
  const std::int64_t line = threadIdx.x / p.half;
  const std::int64_t pair = threadIdx.x % p.half;
  const std::int64_t row = blockIdx.x * lines + line;
  if (line >= lines || row >= p.rows) return;
  const float angle = static_cast<float>(row % p.sequence) * p.frequency.at[pair];
  const float c = cosf(angle);
  const float s = sinf(angle) * p.direction;
  for (std::int64_t head = 0; head < p.heads; ++head) {
    T* at = p.x + (row * p.heads + head) * 2 * p.half + pair;
    const float a = value_of(at[0]);
    const float b = value_of(at[p.half]);
    at[0] = stored<T>(a * c - b * s);
    at[p.half] = stored<T>(b * c + a * s);
  }
}

template <typename T>
void embedding_forward(const Run& run) {
  const std::int64_t n = run.call.columns;
  T* out = run.at<T>(0);
  const T* table = run.at<T>(2);
  launch(embedding_kernel<T>,
         grid_of(run.call.rows),
         threads_for_row<T>(n),
         0,
         run.stream,
         out,
         run.at<std::int64_t>(1),
         table,
         n,
         packable<T>(n, out, table) ? n / kPack<T> : 0);
}

template <typename T>
void embedding_backward(const Run& run) {
  const KernelCall& call = run.call;
  const auto room = kWorkspace / static_cast<std::int64_t>(2 * sizeof(std::int32_t));
  ZP_CHECK(call.rows <= room, "a micro-batch's tokens fit the workspace");
  auto* next = reinterpret_cast<std::int32_t*>(workspace(run.stream));
  const Chain chain{next, next + call.rows, run.at<std::int64_t>(1), call.rows};
  const EmbeddingBackward<T> p{
      run.at<T>(0), chain.ids, run.at<T>(2), chain.next, chain.first, call.columns};
  if (!call.accumulate) {
    clear_memory(
        run.stream, p.d_table, static_cast<std::size_t>(call.inner * call.columns) * sizeof(T));
  }
  launch(chain_kernel,
         grid_of(divide_up(call.rows, kThreads)),
         kThreads,
         kThreads * sizeof(std::int32_t),
         run.stream,
         chain);
  launch(embedding_backward_kernel<T>,
         grid_of(call.rows, divide_up(call.columns, kThreads)),
         kThreads,
         0,
         run.stream,
         p);
}

template <typename T>
void position_forward(const Run& run) {
  const std::int64_t n = run.call.columns;
  const AddPosition<T> operation{run.at<T>(0), run.at<T>(1), run.call.sequence * n};
  for_each(run.stream, operation, run.call.rows * n, packable<T>(n, operation.x, operation.table));
}

template <typename T>
void position_backward(const Run& run) {
  const std::int64_t n = run.call.columns;
  const std::int64_t whole = run.call.sequence * n;
  const SumPositions<T> operation{run.at<T>(0), run.at<T>(1), whole, run.call.rows * n};
  if (!run.call.accumulate) {
    clear_memory(
        run.stream, operation.d_table, static_cast<std::size_t>(run.call.inner * n) * sizeof(T));
  }
  for_each(run.stream, operation, whole, packable<T>(n, operation.d_table, operation.d_x));
}

// As runtime/kernels/cpu_tables.cpp; the frequencies are the host's, so that both have the same.
template <typename T>
void rotate(const Run& run, T* x, std::int64_t heads, float direction) {
  Rotary<T> p{};
  p.x = x;
  p.rows = run.call.rows;
  p.sequence = run.call.sequence;
  p.heads = heads;
  p.half = run.call.head_dim / 2;
  p.direction = direction;
  ZP_CHECK(p.half <= kMostPairs, "rotary positions up to head_dim 256");
  for (std::int64_t i = 0; i < p.half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(run.call.head_dim);
    p.frequency.at[i] = 1.0F / std::pow(static_cast<float>(run.call.rotary_base), exponent);
  }
  if (p.half == 0) return;
  launch(
      rotary_kernel<T>, grid_of(divide_up(p.rows, kThreads / p.half)), kThreads, 0, run.stream, p);
}

}  // namespace

template <typename T>
void run_table(const Run& run) {
  switch (run.call.kernel) {
    case Kernel::embedding_forward:
      return embedding_forward<T>(run);
    case Kernel::embedding_backward:
      return embedding_backward<T>(run);
    case Kernel::position_forward:
      return position_forward<T>(run);
    case Kernel::position_backward:
      return position_backward<T>(run);
    default: {  // rotary_*
      const float direction = run.call.kernel == Kernel::rotary_forward ? 1.0F : -1.0F;
      rotate(run, run.at<T>(0), run.call.heads, direction);
      rotate(run, run.at<T>(1), run.call.kv_heads, direction);
    }
  }
}

ZP_CUDA_KERNELS(run_table);

}  // namespace zeroplan::runtime::cuda
