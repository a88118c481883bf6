// Attention by tensor cores, for one 16-bit format (attention_bf16.cu, attention_fp16.cu). A block
// is four warps; a warp has 16 of the block's 64 rows against tiles of the others. Sums and the
// softmax are fp32; probabilities and their gradients are rounded to the format before they are
// multiplied, as FlashAttention does. Heads are filled up with zeros to kDim, 64, 80, 96 or 128.
//
// Shared memory, rows of kDim + 8 numbers of 2 bytes: forward 192 rows (51 KiB at 128), queries'
// gradient 256 rows (68 KiB), keys' gradient 192 rows and 64 floats (51.25 KiB).
#pragma once

#include "runtime/cuda/kernels/attention.cuh"
#include "runtime/cuda/kernels/tensor_core.cuh"

namespace zeroplan::runtime::cuda {
namespace {

constexpr int kRows = 64;     // of a block
constexpr int kOthers = 64;   // of a tile that rows go through
constexpr int kQueries = 32;  // of a tile that keys go through: two sums a key, so fewer at once
constexpr int kWarpRows = 16;
static_assert(kRows / kWarpRows * 32 == kAttentionThreads);

// Rows [first, first + kTileRows) of a head; 0 past `rows` and past dim.
template <typename T, int kDim, int kTileRows>
__device__ void load_tile(
    T* tile, const Heads<T>& from, std::int64_t first, int rows, std::int64_t head, int dim) {
  constexpr int kPacks = kDim / kPack<T>;
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kPacks; i += kAttentionThreads) {
    const int row = i / kPacks;
    const int d = i % kPacks * kPack<T>;
    Pack<T, kPack<T>> pack{};
    if (row < rows) {
      const T* at = from.at(first + row, head) + d;
      if (from.by_packs) {
        if (d < dim) pack = *reinterpret_cast<const Pack<T, kPack<T>>*>(at);
      } else {
#pragma unroll
        for (int k = 0; k < kPack<T>; ++k) {
          if (d + k < dim) pack.at[k] = at[k];
        }
      }
    }
    *reinterpret_cast<Pack<T, kPack<T>>*>(tile + row * kTileStep<kDim> + d) = pack;
  }
}

// Rows of a head from a tile whose every row this warp has written: kWarpRows from `row` on.
template <typename T, int kDim>
__device__ void store_warp_rows(const Heads<T>& to,
                                const T* tile,
                                int row,
                                std::int64_t first,
                                int rows,
                                std::int64_t head,
                                int dim) {
  constexpr int kPacks = kDim / kPack<T>;
  for (int i = static_cast<int>(threadIdx.x % 32); i < kWarpRows * kPacks; i += 32) {
    const int at = row + i / kPacks;
    const int d = i % kPacks * kPack<T>;
    if (at >= rows) continue;
    const T* from = tile + at * kTileStep<kDim> + d;
    T* out = to.at(first + at, head) + d;
    if (to.by_packs) {
      if (d < dim) {
        *reinterpret_cast<Pack<T, kPack<T>>*>(out) =
            *reinterpret_cast<const Pack<T, kPack<T>>*>(from);
      }
    } else {
#pragma unroll
      for (int k = 0; k < kPack<T>; ++k) {
        if (d + k < dim) out[k] = from[k];
      }
    }
  }
}

// The warp's sums into its rows of a tile; factor[0] for rows of the upper half, [1] of the lower.
template <typename T, int kDim>
__device__ void put_sums(T* tile, int row, const Sums (&sums)[kDim / 8], const float (&factor)[2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  T* upper = tile + (row + lane / 4) * kTileStep<kDim> + 2 * (lane % 4);
  T* lower = upper + 8 * kTileStep<kDim>;
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i) {
    const Sums& s = sums[i];
    write(upper + i * 8, Floats<2>{{s.at[0] * factor[0], s.at[1] * factor[0]}});
    write(lower + i * 8, Floats<2>{{s.at[2] * factor[1], s.at[3] * factor[1]}});
  }
  __syncwarp();
}

template <int kCount>
__device__ void clear(Sums (&sums)[kCount]) {
#pragma unroll
  for (Sums& s : sums) s = Sums{};
}

// Over the four lanes that share a row.
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
__device__ float row_largest(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

__device__ int rows_from(int begin, int sequence, int most) {
  return sequence - begin < most ? sequence - begin : most;
}

// Where a warp and its lane stand: rows row + 8 half of the block's tile, columns of each 8 x 8.
struct Place {
  int warp_row, row, column;
  __device__ Place()
      : warp_row(static_cast<int>(threadIdx.x / 32) * kWarpRows),
        row(warp_row + static_cast<int>(threadIdx.x % 32) / 4),
        column(2 * (static_cast<int>(threadIdx.x) % 4)) {}
};

// The running softmax of a lane's two rows.
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {0.0F, 0.0F};

  // Scores become probabilities of the largest so far; what was summed before shrinks by `shrink`.
  template <int kCount>
  __device__ void soften(Sums (&scores)[kCount], float (&shrink)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = largest[half];
#pragma unroll
      for (const Sums& s : scores) {
        most = fmaxf(most, fmaxf(s.at[2 * half], s.at[2 * half + 1]));
      }
      most = row_largest(most);
      shrink[half] = exp2f(largest[half] - most);
      float sum = 0.0F;
#pragma unroll
      for (Sums& s : scores) {
        s.at[2 * half] = exp2f(s.at[2 * half] - most);
        s.at[2 * half + 1] = exp2f(s.at[2 * half + 1] - most);
        sum += s.at[2 * half] + s.at[2 * half + 1];
      }
      total[half] = total[half] * shrink[half] + sum;  // the lane's own columns
      largest[half] = most;
    }
  }
};

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) forward_kernel(Attention<T> p) {
  T* q = reinterpret_cast<T*>(shared_memory());
  T* k = q + kRows * kTileStep<kDim>;
  T* v = k + kOthers * kTileStep<kDim>;
  const Place at;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (p.shape.heads / p.shape.kv_heads);
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;  // long ones first
  const int rows = rows_from(first, p.shape.sequence, kRows);
  const Scores score(p.shape, head);
  load_tile<T, kDim, kRows>(q, p.q, start + first, rows, head, p.shape.dim);
  Sums out[kDim / 8];
  clear(out);
  Softmax softmax;
  const int last = p.shape.causal ? first + rows : p.shape.sequence;
  for (int key = 0; key < last; key += kOthers) {
    __syncthreads();
    const int keys = rows_from(key, p.shape.sequence, kOthers);
    load_tile<T, kDim, kOthers>(k, p.k, start + key, keys, kv_head, p.shape.dim);
    load_tile<T, kDim, kOthers>(v, p.v, start + key, keys, kv_head, p.shape.dim);
    __syncthreads();
    Sums scores[kOthers / 8];
    clear(scores);
    multiply_rows<T, kDim, kOthers>(scores, q, at.warp_row, k);
#pragma unroll
    for (int i = 0; i < kOthers / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = first + at.row + e / 2 * 8;
        scores[i].at[e] = score(scores[i].at[e], query, key + i * 8 + at.column + e % 2);
      }
    }
    float shrink[2];
    softmax.soften(scores, shrink);
#pragma unroll
    for (Sums& s : out) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s.at[e] *= shrink[e / 2];
    }
    multiply_columns<T, kDim, kOthers>(out, scores, v);
  }
  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = row_sum(softmax.total[half]);
    factor[half] = 1.0F / total;
    const int row = at.row + half * 8;
    if (row < rows && at.column == 0) {
      p.lse[p.shape.statistic(blockIdx.z, head) + first + row] =
          (softmax.largest[half] + log2f(total)) / kLog2E;
    }
  }
  // The warp's rows of q have been read by nobody else.
  put_sums<T, kDim>(q, at.warp_row, out, factor);
  store_warp_rows<T, kDim>(p.out, q, at.warp_row, start + first, rows, head, p.shape.dim);
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) query_kernel(Attention<T> p) {
  T* q = reinterpret_cast<T*>(shared_memory());
  T* d_out = q + kRows * kTileStep<kDim>;
  T* k = d_out + kRows * kTileStep<kDim>;
  T* v = k + kOthers * kTileStep<kDim>;
  const Place at;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (p.shape.heads / p.shape.kv_heads);
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  const int rows = rows_from(first, p.shape.sequence, kRows);
  const Scores score(p.shape, head);
  load_tile<T, kDim, kRows>(q, p.q, start + first, rows, head, p.shape.dim);
  load_tile<T, kDim, kRows>(d_out, p.d_out, start + first, rows, head, p.shape.dim);
  float lse[2];
  float delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.row + half * 8;
    const std::int64_t statistic = p.shape.statistic(blockIdx.z, head) + first + row;
    lse[half] = row < rows ? p.lse[statistic] * kLog2E : INFINITY;  // probability 0
    delta[half] = row < rows ? p.delta[statistic] : 0.0F;
  }
  Sums sums[kDim / 8];
  clear(sums);
  const int last = p.shape.causal ? first + rows : p.shape.sequence;
  for (int key = 0; key < last; key += kOthers) {
    __syncthreads();
    const int keys = rows_from(key, p.shape.sequence, kOthers);
    load_tile<T, kDim, kOthers>(k, p.k, start + key, keys, kv_head, p.shape.dim);
    load_tile<T, kDim, kOthers>(v, p.v, start + key, keys, kv_head, p.shape.dim);
    __syncthreads();
    Sums scores[kOthers / 8];
    Sums d_p[kOthers / 8];
    clear(scores);
    clear(d_p);
    multiply_rows<T, kDim, kOthers>(scores, q, at.warp_row, k);
    multiply_rows<T, kDim, kOthers>(d_p, d_out, at.warp_row, v);
#pragma unroll
    for (int i = 0; i < kOthers / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = first + at.row + e / 2 * 8;
        const float s = score(scores[i].at[e], query, key + i * 8 + at.column + e % 2);
        scores[i].at[e] = exp2f(s - lse[e / 2]) * (d_p[i].at[e] - delta[e / 2]);
      }
    }
    multiply_columns<T, kDim, kOthers>(sums, scores, k);
  }
  put_sums<T, kDim>(q, at.warp_row, sums, {p.shape.scale, p.shape.scale});
  store_warp_rows<T, kDim>(p.d_q, q, at.warp_row, start + first, rows, head, p.shape.dim);
}

// Rows are keys; their sums go over the queries of all heads that share them.
template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) key_kernel(Attention<T> p) {
  T* k = reinterpret_cast<T*>(shared_memory());
  T* v = k + kRows * kTileStep<kDim>;
  T* q = v + kRows * kTileStep<kDim>;
  T* d_out = q + kQueries * kTileStep<kDim>;
  auto* lse = reinterpret_cast<float*>(d_out + kQueries * kTileStep<kDim>);
  float* delta = lse + kQueries;
  const Place at;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group = p.shape.heads / p.shape.kv_heads;
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = static_cast<int>(blockIdx.x) * kRows;
  const int rows = rows_from(first, p.shape.sequence, kRows);
  load_tile<T, kDim, kRows>(k, p.k, start + first, rows, kv_head, p.shape.dim);
  load_tile<T, kDim, kRows>(v, p.v, start + first, rows, kv_head, p.shape.dim);
  Sums sums_k[kDim / 8];
  Sums sums_v[kDim / 8];
  clear(sums_k);
  clear(sums_v);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Scores score(p.shape, head);
    const std::int64_t statistic = p.shape.statistic(blockIdx.z, head);
    for (int query = p.shape.causal ? first : 0; query < p.shape.sequence; query += kQueries) {
      __syncthreads();
      const int queries = rows_from(query, p.shape.sequence, kQueries);
      load_tile<T, kDim, kQueries>(q, p.q, start + query, queries, head, p.shape.dim);
      load_tile<T, kDim, kQueries>(d_out, p.d_out, start + query, queries, head, p.shape.dim);
      const int mine = static_cast<int>(threadIdx.x);
      if (mine < kQueries) {
        const bool there = mine < queries;
        lse[mine] = there ? p.lse[statistic + query + mine] * kLog2E : INFINITY;
        delta[mine] = there ? p.delta[statistic + query + mine] : 0.0F;
      }
      __syncthreads();
      Sums scores[kQueries / 8];
      Sums d_p[kQueries / 8];
      clear(scores);
      clear(d_p);
      multiply_rows<T, kDim, kQueries>(scores, k, at.warp_row, q);
      multiply_rows<T, kDim, kQueries>(d_p, v, at.warp_row, d_out);
#pragma unroll
      for (int i = 0; i < kQueries / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = i * 8 + at.column + e % 2;
          const int key = first + at.row + e / 2 * 8;
          const float s = score(scores[i].at[e], query + column, key);
          scores[i].at[e] = exp2f(s - lse[column]);
          d_p[i].at[e] = scores[i].at[e] * (d_p[i].at[e] - delta[column]);
        }
      }
      multiply_columns<T, kDim, kQueries>(sums_v, scores, d_out);
      multiply_columns<T, kDim, kQueries>(sums_k, d_p, q);
    }
  }
  put_sums<T, kDim>(k, at.warp_row, sums_k, {p.shape.scale, p.shape.scale});
  put_sums<T, kDim>(v, at.warp_row, sums_v, {1.0F, 1.0F});
  store_warp_rows<T, kDim>(p.d_k, k, at.warp_row, start + first, rows, kv_head, p.shape.dim);
  store_warp_rows<T, kDim>(p.d_v, v, at.warp_row, start + first, rows, kv_head, p.shape.dim);
}

template <typename T, int kDim>
void run_with(Stream stream, const Attention<T>& p, std::int64_t batch, bool backward) {
  constexpr std::size_t kRowBytes = kTileStep<kDim> * sizeof(T);
  const std::int64_t tiles = divide_up(p.shape.sequence, kRows);
  const dim3 by_head = grid_of(tiles, p.shape.heads, batch);
  if (!backward) {
    constexpr std::size_t kShared = (kRows + 2 * kOthers) * kRowBytes;
    launch(forward_kernel<T, kDim>, by_head, kAttentionThreads, kShared, stream, p);
    return;
  }
  constexpr std::size_t kOfQueries = (2 * kRows + 2 * kOthers) * kRowBytes;
  launch(query_kernel<T, kDim>, by_head, kAttentionThreads, kOfQueries, stream, p);
  constexpr std::size_t kOfKeys =
      (2 * kRows + 2 * kQueries) * kRowBytes + 2 * kQueries * sizeof(float);
  launch(key_kernel<T, kDim>,
         grid_of(tiles, p.shape.kv_heads, batch),
         kAttentionThreads,
         kOfKeys,
         stream,
         p);
}

}  // namespace

template <typename T>
void attention_by_tensor_cores(Stream stream,
                               const Attention<T>& p,
                               std::int64_t batch,
                               bool backward) {
  if (p.shape.dim <= 64) return run_with<T, 64>(stream, p, batch, backward);
  if (p.shape.dim <= 80) return run_with<T, 80>(stream, p, batch, backward);
  if (p.shape.dim <= 96) return run_with<T, 96>(stream, p, batch, backward);
  run_with<T, 128>(stream, p, batch, backward);
}

}  // namespace zeroplan::runtime::cuda
