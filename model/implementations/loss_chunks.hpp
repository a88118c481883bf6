// How many rows of logits a fused loss holds at once: Liger's rule for the classes that it patches,
// and the embedded runtime's own. It goes into the graph, from which what runs and what predicts
// both have it.
#pragma once

#include <cstdint>

namespace zeroplan {

struct LossSizes {
  std::int64_t tokens = 0;  // of the micro-batch
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
};

// About as many logits as there are hidden states: tokens / ceil(V / H), to the next power of two.
// Source: liger_kernel/ops/fused_linear_cross_entropy.py fused_linear_cross_entropy_forward.
std::int64_t liger_loss_rows(const LossSizes& sizes);

// The embedded runtime's: Liger's rule, but no fewer rows than keep the products efficient, then as
// even as multiples of 128 allow. Every chunk moves the weight twice and its gradient twice, for
// work that shrinks with the chunk, and H columns of results do not fill a GPU from few rows.
//   on a GPU 2048 rows: the three products take at most 7 % longer than of all rows at once, by the
//     times of matrix products (model/cost/gemm.hpp), for vocabularies of 32,000 to 152,000, hidden
//     sizes of 768 to 4096, V100 to H200; 1024 rows up to 19 %. Liger's rule alone has 128 rows of
//     16,384 in Qwen2.5-0.5B: on H100 2.8 times as long;
//   on a CPU rank 128, what its products take at once (runtime/kernels/cpu_linear.cpp). Measured,
//     16,000 x 768 in bf16 on one core: by 64 rows 7 % slower, by 16 rows 79 %, by 512 no faster.
// Checked by tests/runtime/embedded_head_test.cpp.
std::int64_t embedded_loss_rows(const LossSizes& sizes, bool on_gpu);

}  // namespace zeroplan
