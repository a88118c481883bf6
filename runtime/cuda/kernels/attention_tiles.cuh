// What attention's kernels by tensor cores share: tiles of heads in shared memory, where a warp
// stands, scores and their softmax in registers.
#pragma once

#include "runtime/cuda/kernels/async_copy.cuh"
#include "runtime/cuda/kernels/attention.cuh"
#include "runtime/cuda/kernels/tensor_core.cuh"

namespace zeroplan::runtime::cuda {
namespace {

constexpr int kWarps = static_cast<int>(kAttentionThreads) / 32;

// Rows [first, first + kTileRows) of a head on their way into a tile; 0 past `rows` and past dim.
// Rows that are no packs are there at once, the others after the group's wait.
template <typename T, int kDim, int kTileRows>
__device__ void begin_tile(
    T* tile, const Heads<T>& from, std::int64_t first, int rows, std::int64_t head, int dim) {
  constexpr int kPacks = kDim / kPack<T>;
  const T* const origin = from.at(first, head);
  if (from.by_packs) {
#pragma unroll 1  // addresses of several at once would take registers from the sums
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kPacks; i += kAttentionThreads) {
      const int row = i / kPacks;
      const int d = i % kPacks * kPack<T>;
      const bool there = row < rows && d < dim;
      begin_copy<16>(tile + row * kTileStep<kDim> + d,
                     there ? origin + row * from.row_step + d : origin,
                     there);
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kPacks; i += kAttentionThreads) {
    const int row = i / kPacks;
    const int d = i % kPacks * kPack<T>;
    Pack<T, kPack<T>> pack{};
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) {
      if (row < rows && d + k < dim) pack.at[k] = origin[row * from.row_step + d + k];
    }
    *reinterpret_cast<Pack<T, kPack<T>>*>(tile + row * kTileStep<kDim> + d) = pack;
  }
}

// Rows of a head from a tile whose every row this warp has written: kWarpRows from `row` on.
template <typename T, int kDim, int kWarpRows>
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

// Where a warp and its lane stand: of a group of 16 rows, rows row + 16 group + 8 half of the
// block's tile; columns of each 8 x 8.
template <int kGroups>
struct Place {
  static constexpr int kWarpRows = 16 * kGroups;
  static constexpr int kRows = kWarps * kWarpRows;  // of the block
  int warp_row, row, column;
  __device__ Place()
      : warp_row(static_cast<int>(threadIdx.x / 32) * kWarpRows),
        row(warp_row + static_cast<int>(threadIdx.x % 32) / 4),
        column(2 * (static_cast<int>(threadIdx.x) % 4)) {}
};

// The warp's sums into its rows of a tile, times a factor a row.
template <typename T, int kDim, int kGroups>
__device__ void put_sums(T* tile,
                         const Place<kGroups>& at,
                         const Sums (&sums)[kGroups][kDim / 8],
                         const float (&factor)[kGroups][2]) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    T* upper = tile + (at.row + group * 16) * kTileStep<kDim> + at.column;
    T* lower = upper + 8 * kTileStep<kDim>;
    const float(&by)[2] = factor[group];
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const Sums& s = sums[group][i];
      write(upper + i * 8, Floats<2>{{s.at[0] * by[0], s.at[1] * by[0]}});
      write(lower + i * 8, Floats<2>{{s.at[2] * by[1], s.at[3] * by[1]}});
    }
  }
  __syncwarp();
}

template <int kGroups, int kCount>
__device__ __forceinline__ void clear(Sums (&sums)[kGroups][kCount]) {
#pragma unroll
  for (auto& group : sums) {
#pragma unroll
    for (Sums& s : group) s = Sums{};
  }
}

// Calls body(sum, group, half, column) for each of a lane's sums; column of its row's.
template <int kGroups, int kCount, typename Body>
__device__ __forceinline__ void for_sums(Sums (&sums)[kGroups][kCount], Body&& body) {
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) body(sums[group][i].at[e], group, e / 2, i * 8 + e % 2);
    }
  }
}

// A tile's products become its scores but for the factor that is returned. at(group, half, column)
// says of which query and key; edge: some of them may not be seen.
struct Pair {
  int query, key;
};
template <int kGroups, int kCount, typename At>
__device__ __forceinline__ float put_bias(Sums (&scores)[kGroups][kCount],
                                          const Scores& score,
                                          bool edge,
                                          At&& at) {
  if (edge) {
    for_sums(scores, [&](float& s, int group, int half, int column) {
      const Pair pair = at(group, half, column);
      s = score(s, pair.query, pair.key);
    });
    return 1.0F;
  }
  if (score.plain) return score.scale;
  for_sums(scores, [&](float& s, int group, int half, int column) {
    const Pair pair = at(group, half, column);
    s = score.of_whole(s, pair.query, pair.key);
  });
  return 1.0F;
}

// Over the four lanes that share a row.
__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}
__device__ __forceinline__ float row_largest(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}

__device__ __forceinline__ int rows_from(int begin, int sequence, int most) {
  return sequence - begin < most ? sequence - begin : most;
}

// The running softmax of a lane's rows.
template <int kGroups>
struct Softmax {
  float largest[kGroups][2];
  float total[kGroups][2];

  __device__ Softmax() {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[group][half] = -INFINITY;
        total[group][half] = 0.0F;
      }
    }
  }

  // Scores, times a factor above 0, become probabilities of the largest so far; what was summed
  // before shrinks by `shrink`. In every row some score of the first call is finite.
  template <int kCount>
  __device__ __forceinline__ void soften(Sums (&scores)[kGroups][kCount],
                                         float factor,
                                         float (&shrink)[kGroups][2]) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = -INFINITY;
#pragma unroll
        for (const Sums& s : scores[group]) {
          most = fmaxf(most, fmaxf(s.at[2 * half], s.at[2 * half + 1]));
        }
        most = fmaxf(largest[group][half], row_largest(most) * factor);
        shrink[group][half] = power_of_two(largest[group][half] - most);
        float sum = 0.0F;
#pragma unroll
        for (Sums& s : scores[group]) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s.at[e] = power_of_two(fmaf(s.at[e], factor, -most));
            sum += s.at[e];
          }
        }
        total[group][half] = total[group][half] * shrink[group][half] + sum;  // the lane's columns
        largest[group][half] = most;
      }
    }
  }
};

}  // namespace
}  // namespace zeroplan::runtime::cuda
