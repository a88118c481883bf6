// Attention by tensor cores, for one 16-bit format (attention_bf16.cu, attention_fp16.cu). A block
// is four warps with 16 or 32 rows each against tiles of the others, whose next one is on its way
// while this one is multiplied. Sums and the softmax are fp32; probabilities and their gradients
// are rounded to the format before they are multiplied, as FlashAttention does. Heads are filled up
// with zeros to kDim, 64, 80, 96 or 128.
#pragma once

#include "runtime/cuda/kernels/attention_tiles.cuh"

namespace zeroplan::runtime::cuda {
namespace {

// How heads of kDim are cut: groups of 16 rows that a warp has, and rows of a tile that they go
// through. A matrix of the other tile, once read from shared memory, is multiplied by every group;
// sums of the rows, and of their tile, are registers. Kept: the rows' own factors are, too.
template <int kDim>
struct Cut {
  static constexpr int kForwardGroups = 2, kForwardKeys = kDim <= 96 ? 64 : 48;
  static constexpr int kQueryGroups = kDim <= 64 ? 2 : 1, kQueryKeys = kDim <= 64 ? 64 : 32;
  static constexpr int kKeyGroups = 1, kKeyQueries = kDim <= 64 ? 64 : 32;
  static constexpr bool kQueryKept = kDim > 64, kKeyKept = kDim <= 96;
};

// A tile of queries, one of their gradients, and the statistics of their rows.
template <typename T, int kDim, int kQueries>
struct QueryTile {
  T q[kQueries * kTileStep<kDim>];
  T d_out[kQueries * kTileStep<kDim>];
  float lse[kQueries], delta[kQueries];

  // Rows past the sequence: every number 0, so nothing of them is added.
  __device__ void begin(const Attention<T>& p, int head, int query) {
    const std::int64_t first = std::int64_t{blockIdx.z} * p.shape.sequence + query;
    const int rows = rows_from(query, p.shape.sequence, kQueries);
    begin_tile<T, kDim, kQueries>(q, p.q, first, rows, head, p.shape.dim);
    begin_tile<T, kDim, kQueries>(d_out, p.d_out, first, rows, head, p.shape.dim);
    const int mine = static_cast<int>(threadIdx.x);
    if (mine < kQueries) {
      const std::int64_t statistic = p.shape.statistic(blockIdx.z, head) + query;
      const int from = mine < rows ? mine : 0;
      begin_copy<4>(lse + mine, p.lse + statistic + from, mine < rows);
      begin_copy<4>(delta + mine, p.delta + statistic + from, mine < rows);
    }
    commit_copies();
  }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// GPUs before 8.0 have neither these products nor cp.async, and never get here (attention.cu).
template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) forward_kernel(Attention<T>) {
  __trap();
}
template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) query_kernel(Attention<T>) {
  __trap();
}
template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) key_kernel(Attention<T>) {
  __trap();
}
#else

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) forward_kernel(Attention<T> p) {
  constexpr int kGroups = Cut<kDim>::kForwardGroups;
  constexpr int kKeys = Cut<kDim>::kForwardKeys;
  const Place<kGroups> at;
  T* q = reinterpret_cast<T*>(shared_memory());
  T* k = q + at.kRows * kTileStep<kDim>;
  T* v = k + kKeys * kTileStep<kDim>;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (p.shape.heads / p.shape.kv_heads);
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * at.kRows;  // long ones first
  const int rows = rows_from(first, p.shape.sequence, at.kRows);
  const Scores score(p.shape, head);
  begin_tile<T, kDim, at.kRows>(q, p.q, start + first, rows, head, p.shape.dim);
  const auto begin_keys = [&](T* tile, const Heads<T>& from, int key) {
    const int keys = rows_from(key, p.shape.sequence, kKeys);
    begin_tile<T, kDim, kKeys>(tile, from, start + key, keys, kv_head, p.shape.dim);
    commit_copies();
  };
  begin_keys(k, p.k, 0);
  Sums out[kGroups][kDim / 8];
  clear(out);
  Softmax<kGroups> softmax;
  const int last = p.shape.causal ? first + rows : p.shape.sequence;
  const int query = first + at.warp_row;  // the warp's first
  for (int key = 0; key < last; key += kKeys) {
    const bool seen = !p.shape.causal || key < query + at.kWarpRows;  // by some of the warp's rows
    wait_for_copies<0>();
    __syncthreads();  // k is there, v free
    begin_keys(v, p.v, key);
    Sums scores[kGroups][kKeys / 8];
    if (seen) {
      clear(scores);
      multiply_rows<T, kDim, kKeys, kGroups, false>(scores, {q, at.warp_row}, k);
    }
    wait_for_copies<0>();
    __syncthreads();  // v is there, k free
    if (key + kKeys < last) begin_keys(k, p.k, key + kKeys);
    if (!seen) continue;
    const bool edge = key + kKeys > p.shape.sequence || (p.shape.causal && key + kKeys > query + 1);
    const float factor = put_bias(scores, score, edge, [&](int group, int half, int column) {
      return Pair{first + at.row + group * 16 + half * 8, key + at.column + column};
    });
    float shrink[kGroups][2];
    softmax.soften(scores, factor, shrink);
    for_sums(out, [&](float& s, int group, int half, int) { s *= shrink[group][half]; });
    multiply_columns<T, kDim, kKeys, kGroups>(out, scores, v);
  }
  float factor[kGroups][2];
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = row_sum(softmax.total[group][half]);
      factor[group][half] = 1.0F / total;
      const int row = at.row + group * 16 + half * 8;
      if (row < rows && at.column == 0) {
        p.lse[p.shape.statistic(blockIdx.z, head) + first + row] =
            (softmax.largest[group][half] + log2f(total)) / kLog2E;
      }
    }
  }
  // The warp's rows of q have been read by nobody else.
  put_sums<T, kDim, kGroups>(q, at, out, factor);
  store_warp_rows<T, kDim, at.kWarpRows>(
      p.out, q, at.warp_row, start + first, rows, head, p.shape.dim);
}

template <int kGroups>
__device__ void fill(float (&factor)[kGroups][2], float value) {
#pragma unroll
  for (auto& group : factor) group[0] = group[1] = value;
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) query_kernel(Attention<T> p) {
  constexpr int kGroups = Cut<kDim>::kQueryGroups;
  constexpr int kKeys = Cut<kDim>::kQueryKeys;
  constexpr bool kKept = Cut<kDim>::kQueryKept;
  const Place<kGroups> at;
  T* q = reinterpret_cast<T*>(shared_memory());
  T* d_out = q + at.kRows * kTileStep<kDim>;
  T* v = d_out + at.kRows * kTileStep<kDim>;
  T* k = v + kKeys * kTileStep<kDim>;  // two tiles, in turn: it is read to the end of a round
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (p.shape.heads / p.shape.kv_heads);
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * at.kRows;
  const int rows = rows_from(first, p.shape.sequence, at.kRows);
  const Scores score(p.shape, head);
  begin_tile<T, kDim, at.kRows>(q, p.q, start + first, rows, head, p.shape.dim);
  begin_tile<T, kDim, at.kRows>(d_out, p.d_out, start + first, rows, head, p.shape.dim);
  const auto begin_keys = [&](T* tile, const Heads<T>& from, int key) {
    const int keys = rows_from(key, p.shape.sequence, kKeys);
    begin_tile<T, kDim, kKeys>(tile, from, start + key, keys, kv_head, p.shape.dim);
    commit_copies();
  };
  begin_keys(k, p.k, 0);
  begin_keys(v, p.v, 0);
  float lse[kGroups][2];
  float delta[kGroups][2];
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row + group * 16 + half * 8;
      const std::int64_t statistic = p.shape.statistic(blockIdx.z, head) + first + row;
      lse[group][half] = row < rows ? p.lse[statistic] * kLog2E : INFINITY;  // probability 0
      delta[group][half] = row < rows ? p.delta[statistic] : 0.0F;
    }
  }
  wait_for_copies<0>();
  __syncthreads();
  const LeftRows<T, kDim, kGroups, kKept> left_q(q, at.warp_row);
  const LeftRows<T, kDim, kGroups, kKept> left_d(d_out, at.warp_row);
  Sums sums[kGroups][kDim / 8];
  clear(sums);
  const int last = p.shape.causal ? first + rows : p.shape.sequence;
  const int query = first + at.warp_row;
  int turn = 0;
  for (int key = 0; key < last; key += kKeys, turn ^= 1) {
    const bool seen = !p.shape.causal || key < query + at.kWarpRows;
    const bool more = key + kKeys < last;
    const T* keys = k + turn * kKeys * kTileStep<kDim>;
    wait_for_copies<0>();
    __syncthreads();  // k and v are there, the other k is free
    if (more) begin_keys(k + (turn ^ 1) * kKeys * kTileStep<kDim>, p.k, key + kKeys);
    Sums d_p[kGroups][kKeys / 8];
    if (seen) {
      clear(d_p);
      multiply_rows<T, kDim, kKeys, kGroups, kKept>(d_p, left_d, v);
    }
    __syncthreads();  // v is free
    if (more) begin_keys(v, p.v, key + kKeys);
    if (!seen) continue;
    Sums scores[kGroups][kKeys / 8];
    clear(scores);
    multiply_rows<T, kDim, kKeys, kGroups, kKept>(scores, left_q, keys);
    const bool edge = key + kKeys > p.shape.sequence || (p.shape.causal && key + kKeys > query + 1);
    const float factor = put_bias(scores, score, edge, [&](int group, int half, int column) {
      return Pair{first + at.row + group * 16 + half * 8, key + at.column + column};
    });
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& s = scores[group][i].at[e];
          s = power_of_two(fmaf(s, factor, -lse[group][e / 2])) *
              (d_p[group][i].at[e] - delta[group][e / 2]);
        }
      }
    }
    multiply_columns<T, kDim, kKeys, kGroups>(sums, scores, keys);
  }
  float factor[kGroups][2];
  fill(factor, p.shape.scale);
  put_sums<T, kDim, kGroups>(q, at, sums, factor);
  store_warp_rows<T, kDim, at.kWarpRows>(
      p.d_q, q, at.warp_row, start + first, rows, head, p.shape.dim);
}

// Rows are keys; their sums go over the queries of all heads that share them.
template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) key_kernel(Attention<T> p) {
  constexpr int kGroups = Cut<kDim>::kKeyGroups;
  constexpr int kQueries = Cut<kDim>::kKeyQueries;
  constexpr bool kKept = Cut<kDim>::kKeyKept;
  const Place<kGroups> at;
  T* k = reinterpret_cast<T*>(shared_memory());
  T* v = k + at.kRows * kTileStep<kDim>;
  auto* tiles = reinterpret_cast<QueryTile<T, kDim, kQueries>*>(v + at.kRows * kTileStep<kDim>);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group_heads = p.shape.heads / p.shape.kv_heads;
  const std::int64_t start = std::int64_t{blockIdx.z} * p.shape.sequence;
  const int first = static_cast<int>(blockIdx.x) * at.kRows;
  const int rows = rows_from(first, p.shape.sequence, at.kRows);
  const int begin = p.shape.causal ? first : 0;
  begin_tile<T, kDim, at.kRows>(k, p.k, start + first, rows, kv_head, p.shape.dim);
  begin_tile<T, kDim, at.kRows>(v, p.v, start + first, rows, kv_head, p.shape.dim);
  tiles->begin(p, kv_head * group_heads, begin);
  wait_for_copies<0>();
  __syncthreads();
  const LeftRows<T, kDim, kGroups, kKept> left_k(k, at.warp_row);
  const LeftRows<T, kDim, kGroups, kKept> left_v(v, at.warp_row);
  Sums sums_k[kGroups][kDim / 8];
  Sums sums_v[kGroups][kDim / 8];
  clear(sums_k);
  clear(sums_v);
  const int key = first + at.warp_row;  // the warp's first
  int turn = 0;
  for (int head = kv_head * group_heads; head < (kv_head + 1) * group_heads; ++head) {
    const Scores score(p.shape, head);
    for (int query = begin; query < p.shape.sequence; query += kQueries, turn ^= 1) {
      wait_for_copies<0>();
      __syncthreads();  // this turn's tiles are there, the other's free
      if (query + kQueries < p.shape.sequence) {
        tiles[turn ^ 1].begin(p, head, query + kQueries);
      } else if (head + 1 < (kv_head + 1) * group_heads) {
        tiles[turn ^ 1].begin(p, head + 1, begin);
      }
      if (p.shape.causal && query + kQueries <= key) continue;  // none of them sees the warp's keys
      const QueryTile<T, kDim, kQueries>& tile = tiles[turn];
      Sums scores[kGroups][kQueries / 8];
      clear(scores);
      multiply_rows<T, kDim, kQueries, kGroups, kKept>(scores, left_k, tile.q);
      // Keys past the sequence are rows that nobody stores.
      const bool edge = p.shape.causal && query < key + at.kWarpRows - 1;
      const float factor = put_bias(scores, score, edge, [&](int group, int half, int column) {
        return Pair{query + at.column + column, first + at.row + group * 16 + half * 8};
      });
      for_sums(scores, [&](float& s, int, int, int column) {
        s = power_of_two(fmaf(s, factor, -tile.lse[at.column + column] * kLog2E));
      });
      Sums d_p[kGroups][kQueries / 8];
      clear(d_p);
      multiply_rows<T, kDim, kQueries, kGroups, kKept>(d_p, left_v, tile.d_out);
#pragma unroll
      for (int i = 0; i < kQueries / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float delta = tile.delta[i * 8 + at.column + e % 2];
#pragma unroll
          for (int group = 0; group < kGroups; ++group) {
            d_p[group][i].at[e] = scores[group][i].at[e] * (d_p[group][i].at[e] - delta);
          }
        }
      }
      multiply_columns<T, kDim, kQueries, kGroups>(sums_v, scores, tile.d_out);
      multiply_columns<T, kDim, kQueries, kGroups>(sums_k, d_p, tile.q);
    }
  }
  float factor[kGroups][2];
  fill(factor, p.shape.scale);
  put_sums<T, kDim, kGroups>(k, at, sums_k, factor);
  fill(factor, 1.0F);
  put_sums<T, kDim, kGroups>(v, at, sums_v, factor);
  store_warp_rows<T, kDim, at.kWarpRows>(
      p.d_k, k, at.warp_row, start + first, rows, kv_head, p.shape.dim);
  store_warp_rows<T, kDim, at.kWarpRows>(
      p.d_v, v, at.warp_row, start + first, rows, kv_head, p.shape.dim);
}

#endif

template <typename T, int kDim>
void run_with(Stream stream, const Attention<T>& p, std::int64_t batch, bool backward) {
  using Cut = Cut<kDim>;
  constexpr std::size_t kRowBytes = kTileStep<kDim> * sizeof(T);
  const auto blocks = [&](int rows, int heads) {
    return grid_of(divide_up(p.shape.sequence, rows), heads, batch);
  };
  if (!backward) {
    constexpr int kRows = Place<Cut::kForwardGroups>::kRows;
    constexpr std::size_t kShared = (kRows + 2 * Cut::kForwardKeys) * kRowBytes;
    launch(forward_kernel<T, kDim>,
           blocks(kRows, p.shape.heads),
           kAttentionThreads,
           kShared,
           stream,
           p);
    return;
  }
  constexpr int kQueryRows = Place<Cut::kQueryGroups>::kRows;
  constexpr std::size_t kOfQueries = (2 * kQueryRows + 3 * Cut::kQueryKeys) * kRowBytes;
  launch(query_kernel<T, kDim>,
         blocks(kQueryRows, p.shape.heads),
         kAttentionThreads,
         kOfQueries,
         stream,
         p);
  constexpr int kKeyRows = Place<Cut::kKeyGroups>::kRows;
  constexpr std::size_t kOfKeys =
      2 * kKeyRows * kRowBytes + 2 * sizeof(QueryTile<T, kDim, Cut::kKeyQueries>);
  launch(key_kernel<T, kDim>,
         blocks(kKeyRows, p.shape.kv_heads),
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
