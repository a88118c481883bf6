// Attention without the matrix of scores, as data for its kernels. Forward: blocks of queries
// against blocks of keys with a running maximum. Backward: one kernel for queries, one for keys,
// each computes the probabilities again, so that no sum needs atomics (7 products of blocks instead
// of the 5 of a backward pass that adds dQ by atomics). Dao et al. 2022, arXiv:2205.14135; Dao
// 2023, arXiv:2307.08691.
#pragma once

#include "runtime/cuda/kernels/groups.cuh"

namespace zeroplan::runtime::cuda {

inline constexpr unsigned kAttentionThreads = 128;
inline constexpr float kLog2E = 1.4426950408889634074F;

// One of q, k, v, out or their gradients: (row, head, d) at row * row_step + head * head_step + d.
template <typename T>
struct Heads {
  T* data;
  std::int64_t row_step, head_step;
  bool by_packs;  // every row of a head begins at a multiple of 16 bytes and is whole packs

  __device__ T* at(std::int64_t row, std::int64_t head) const {
    return data + row * row_step + head * head_step;
  }
};

struct AttentionShape {
  int sequence, heads, kv_heads, dim;
  float scale;
  bool causal, alibi;

  __device__ std::int64_t statistic(std::int64_t batch, std::int64_t head) const {
    return (batch * heads + head) * sequence;
  }
};

// Forward uses q, k, v, out, lse; backward all.
template <typename T>
struct Attention {
  AttentionShape shape;
  Heads<T> q, k, v, out, d_q, d_k, d_v, d_out;
  float *lse, *delta;
};

// Scores in base 2, where they may be: -infinity elsewhere.
struct Scores {
  float scale, slope;
  int sequence;
  bool causal;
  bool plain;  // whole tiles' scores are their products times scale, which is above 0

  // The slope of a head: as alibi_slope of runtime/kernels/cpu_attention.cpp, where its source
  // stands.
  __device__ Scores(const AttentionShape& shape, int head)
      : scale(shape.scale * kLog2E),
        slope(0.0F),
        sequence(shape.sequence),
        causal(shape.causal),
        plain(!shape.alibi && shape.scale > 0.0F) {
    if (!shape.alibi) return;
    int power = 1;
    while (power * 2 <= shape.heads) power *= 2;
    const float first = -8.0F / static_cast<float>(power);
    const float exponent = head < power ? first * static_cast<float>(head + 1)
                                        : first * 0.5F * static_cast<float>(2 * (head - power) + 1);
    slope = exp2f(exponent) * kLog2E;
  }
  __device__ float operator()(float product, int query, int key) const {
    if (key >= sequence || (causal && key > query)) return -INFINITY;
    return of_whole(product, query, key);
  }
  __device__ float of_whole(float product, int query, int key) const {
    return product * scale + slope * static_cast<float>(key - query);
  }
};

// By tensor cores: 16-bit formats, dim <= 128. Else by multiplications and additions in fp32.
template <typename T>
void attention_by_tensor_cores(Stream stream,
                               const Attention<T>& p,
                               std::int64_t batch,
                               bool backward);
template <typename T>
void attention_by_threads(Stream stream, const Attention<T>& p, std::int64_t batch, bool backward);

}  // namespace zeroplan::runtime::cuda
