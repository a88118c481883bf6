// Attention by multiplications and additions in fp32: for fp32, and for heads too large for the
// tensor cores' kernels. A block has 32 rows, four threads each; a thread of a row has every fourth
// column.
//
// Shared memory: tiles of 32 rows of dim + 1 floats (three forward, four backward), and 32 x 33
// floats for scores (twice for keys): 100.5 KiB forward, 136.75 KiB backward at dim 256; 52.5 and
// 72.75 KiB at 128.
#include "runtime/cuda/kernels/attention.cuh"

namespace zeroplan::runtime::cuda {
namespace {

constexpr int kRows = 32;
constexpr int kSplit = 4;  // threads of a row
constexpr int kEach = kRows / kSplit;
constexpr int kScoreStep = kRows + 1;
static_assert(kRows * kSplit == kAttentionThreads);

template <int kDim>
constexpr int kStep = kDim + 1;
template <int kDim>
constexpr int kTile = kRows* kStep<kDim>;

// Rows [first, first + kRows) of a head; 0 past `rows` and past dim.
template <int kDim, typename T>
__device__ void load_tile(
    float* tile, const Heads<T>& from, std::int64_t first, int rows, std::int64_t head, int dim) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kDim; i += kAttentionThreads) {
    const int row = i / kDim;
    const int d = i % kDim;
    const bool there = row < rows && d < dim;
    tile[row * kStep<kDim> + d] = there ? value_of(from.at(first + row, head)[d]) : 0.0F;
  }
}

// What a thread has of a row's sums: columns part + kSplit * i.
template <int kDim>
struct RowSums {
  float at[kDim / kSplit];
};

struct Place {
  int row, part;  // of the tile
  __device__ Place()
      : row(static_cast<int>(threadIdx.x) / kSplit), part(static_cast<int>(threadIdx.x) % kSplit) {}
};

// result[i] = row of a times row part + kSplit * i of b
template <int kDim>
__device__ void multiply_rows(float (&result)[kEach], const float* a, const float* b, Place at) {
#pragma unroll
  for (float& value : result) value = 0.0F;
  for (int d = 0; d < kDim; ++d) {
    const float left = a[at.row * kStep<kDim> + d];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      result[i] += left * b[(at.part + kSplit * i) * kStep<kDim> + d];
    }
  }
}

// sums += the row of p (kRows numbers, in shared memory) times b
template <int kDim>
__device__ void multiply_columns(RowSums<kDim>& sums, const float* p, const float* b, Place at) {
  for (int j = 0; j < kRows; ++j) {
    const float left = p[at.row * kScoreStep + j];
#pragma unroll
    for (int i = 0; i < kDim / kSplit; ++i) {
      sums.at[i] += left * b[j * kStep<kDim> + at.part + kSplit * i];
    }
  }
}

template <int kDim, typename T>
__device__ void store_row(T* to, const RowSums<kDim>& sums, float factor, int dim, Place at) {
#pragma unroll
  for (int i = 0; i < kDim / kSplit; ++i) {
    const int d = at.part + kSplit * i;
    if (d < dim) to[d] = stored<T>(sums.at[i] * factor);
  }
}

// Over the threads of a row.
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
__device__ float row_largest(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

__device__ int rows_from(int begin, int sequence) {
  return sequence - begin < kRows ? sequence - begin : kRows;
}

// The block's tile of rows: long causal ones first.
__device__ int first_row() { return static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows; }

// One step of the running softmax: scores become probabilities of the largest so far.
__device__ float soften(float (&scores)[kEach], float& largest, float& total, float* p, Place at) {
  float most = largest;
#pragma unroll
  for (const float score : scores) most = fmaxf(most, score);
  most = row_largest(most);
  const float shrink = exp2f(largest - most);
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float probability = exp2f(scores[i] - most);
    sum += probability;
    p[at.row * kScoreStep + at.part + kSplit * i] = probability;
  }
  total = total * shrink + row_sum(sum);
  largest = most;
  __syncwarp();  // a row is one warp's
  return shrink;
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) forward_kernel(Attention<T> p) {
  auto* q = reinterpret_cast<float*>(shared_memory());
  float* k = q + kTile<kDim>;
  float* v = k + kTile<kDim>;
  float* scores = v + kTile<kDim>;
  const Place at;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (p.shape.heads / p.shape.kv_heads);
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = first_row();
  const int rows = rows_from(first, p.shape.sequence);
  const Scores score(p.shape, head);
  load_tile<kDim>(q, p.q, start + first, rows, head, p.shape.dim);
  RowSums<kDim> sums{};
  float largest = -INFINITY;
  float total = 0.0F;
  const int last = p.shape.causal ? first + rows : p.shape.sequence;
  for (int key = 0; key < last; key += kRows) {
    __syncthreads();
    const int keys = rows_from(key, p.shape.sequence);
    load_tile<kDim>(k, p.k, start + key, keys, kv_head, p.shape.dim);
    load_tile<kDim>(v, p.v, start + key, keys, kv_head, p.shape.dim);
    __syncthreads();
    float products[kEach];
    multiply_rows<kDim>(products, q, k, at);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      products[i] = score(products[i], first + at.row, key + at.part + kSplit * i);
    }
    const float shrink = soften(products, largest, total, scores, at);
#pragma unroll
    for (float& sum : sums.at) sum *= shrink;
    multiply_columns(sums, scores, v, at);
  }
  if (at.row >= rows) return;
  store_row(p.out.at(start + first + at.row, head), sums, 1.0F / total, p.shape.dim, at);
  if (at.part == 0) {
    p.lse[p.shape.statistic(blockIdx.z, head) + first + at.row] = (largest + log2f(total)) / kLog2E;
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) query_kernel(Attention<T> p) {
  auto* q = reinterpret_cast<float*>(shared_memory());
  float* d_out = q + kTile<kDim>;
  float* k = d_out + kTile<kDim>;
  float* v = k + kTile<kDim>;
  float* scores = v + kTile<kDim>;
  const Place at;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (p.shape.heads / p.shape.kv_heads);
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = first_row();
  const int rows = rows_from(first, p.shape.sequence);
  const Scores score(p.shape, head);
  load_tile<kDim>(q, p.q, start + first, rows, head, p.shape.dim);
  load_tile<kDim>(d_out, p.d_out, start + first, rows, head, p.shape.dim);
  const std::int64_t statistic = p.shape.statistic(blockIdx.z, head) + first + at.row;
  const float lse = at.row < rows ? p.lse[statistic] * kLog2E : 0.0F;
  const float delta = at.row < rows ? p.delta[statistic] : 0.0F;
  RowSums<kDim> sums{};
  const int last = p.shape.causal ? first + rows : p.shape.sequence;
  for (int key = 0; key < last; key += kRows) {
    __syncthreads();
    const int keys = rows_from(key, p.shape.sequence);
    load_tile<kDim>(k, p.k, start + key, keys, kv_head, p.shape.dim);
    load_tile<kDim>(v, p.v, start + key, keys, kv_head, p.shape.dim);
    __syncthreads();
    float products[kEach];
    float d_p[kEach];
    multiply_rows<kDim>(products, q, k, at);
    multiply_rows<kDim>(d_p, d_out, v, at);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = at.part + kSplit * i;
      const float probability = exp2f(score(products[i], first + at.row, key + column) - lse);
      scores[at.row * kScoreStep + column] = at.row < rows ? probability * (d_p[i] - delta) : 0.0F;
    }
    __syncwarp();
    multiply_columns(sums, scores, k, at);
  }
  if (at.row >= rows) return;
  store_row(p.d_q.at(start + first + at.row, head), sums, p.shape.scale, p.shape.dim, at);
}

// A row is a key; its sums go over the queries of all heads that share it.
template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) key_kernel(Attention<T> p) {
  auto* k = reinterpret_cast<float*>(shared_memory());
  float* v = k + kTile<kDim>;
  float* q = v + kTile<kDim>;
  float* d_out = q + kTile<kDim>;
  float* probabilities = d_out + kTile<kDim>;
  float* slopes = probabilities + kRows * kScoreStep;
  const Place at;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = p.shape.heads / p.shape.kv_heads;
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = static_cast<int>(blockIdx.x) * kRows;
  const int rows = rows_from(first, p.shape.sequence);
  load_tile<kDim>(k, p.k, start + first, rows, kv_head, p.shape.dim);
  load_tile<kDim>(v, p.v, start + first, rows, kv_head, p.shape.dim);
  RowSums<kDim> sums_k{};
  RowSums<kDim> sums_v{};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Scores score(p.shape, head);
    const std::int64_t statistic = p.shape.statistic(blockIdx.z, head);
    for (int query = p.shape.causal ? first : 0; query < p.shape.sequence; query += kRows) {
      __syncthreads();
      const int queries = rows_from(query, p.shape.sequence);
      load_tile<kDim>(q, p.q, start + query, queries, head, p.shape.dim);
      load_tile<kDim>(d_out, p.d_out, start + query, queries, head, p.shape.dim);
      __syncthreads();
      float products[kEach];
      float d_p[kEach];
      multiply_rows<kDim>(products, k, q, at);
      multiply_rows<kDim>(d_p, v, d_out, at);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int column = at.part + kSplit * i;
        const int index = at.row * kScoreStep + column;
        probabilities[index] = 0.0F;
        slopes[index] = 0.0F;
        if (column >= queries) continue;
        const float lse = p.lse[statistic + query + column] * kLog2E;
        const float delta = p.delta[statistic + query + column];
        probabilities[index] = exp2f(score(products[i], query + column, first + at.row) - lse);
        slopes[index] = probabilities[index] * (d_p[i] - delta);
      }
      __syncwarp();
      multiply_columns(sums_v, probabilities, d_out, at);
      multiply_columns(sums_k, slopes, q, at);
    }
  }
  if (at.row >= rows) return;
  store_row(p.d_k.at(start + first + at.row, kv_head), sums_k, p.shape.scale, p.shape.dim, at);
  store_row(p.d_v.at(start + first + at.row, kv_head), sums_v, 1.0F, p.shape.dim, at);
}

template <typename T, int kDim>
void run_with(Stream stream, const Attention<T>& p, std::int64_t batch, bool backward) {
  constexpr std::size_t kTileBytes = kTile<kDim> * sizeof(float);
  constexpr std::size_t kScoreBytes = kRows * kScoreStep * sizeof(float);
  const std::int64_t tiles = divide_up(p.shape.sequence, kRows);
  const dim3 by_head = grid_of(tiles, p.shape.heads, batch);
  if (!backward) {
    launch(forward_kernel<T, kDim>,
           by_head,
           kAttentionThreads,
           3 * kTileBytes + kScoreBytes,
           stream,
           p);
    return;
  }
  launch(
      query_kernel<T, kDim>, by_head, kAttentionThreads, 4 * kTileBytes + kScoreBytes, stream, p);
  launch(key_kernel<T, kDim>,
         grid_of(tiles, p.shape.kv_heads, batch),
         kAttentionThreads,
         4 * kTileBytes + 2 * kScoreBytes,
         stream,
         p);
}

}  // namespace

template <typename T>
void attention_by_threads(Stream stream, const Attention<T>& p, std::int64_t batch, bool backward) {
  if (p.shape.dim <= 64) return run_with<T, 64>(stream, p, batch, backward);
  if (p.shape.dim <= 128) return run_with<T, 128>(stream, p, batch, backward);
  run_with<T, 256>(stream, p, batch, backward);
}

template void attention_by_threads(Stream, const Attention<float>&, std::int64_t, bool);
template void attention_by_threads(Stream, const Attention<Bf16>&, std::int64_t, bool);
template void attention_by_threads(Stream, const Attention<Fp16>&, std::int64_t, bool);

}  // namespace zeroplan::runtime::cuda
