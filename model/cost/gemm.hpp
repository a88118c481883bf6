// Time of a matrix product by its shape: waves of tiles over the multiprocessors against the
// memory's rate, the best of a few tile sizes and splits of k.
//
// Two numbers are kept apart, because single kernels on a cool GPU are 10-40 % faster than the
// same GPU at work for minutes: isolated() is what kernel tables show, sustained() what training
// sees, longer by `matmul_sustained_derate`.
//
// Units: Seconds; sizes in elements. A MatmulTimes belongs to one GPU and is cheap to ask: some
// hundred nanoseconds a shape.
#pragma once

#include <array>

#include "model/cost/coefficients.hpp"
#include "model/graph/graph.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

// What a product is for. Gradients run at the forward pass's rate: SimuMax's forward and input
// gradient products on A100 PCIe share one fit within 1.6 %, plain weight gradients on B200 are 4 %
// faster. A weight gradient that the kernel itself adds into an fp32 buffer (Megatron) reads and
// writes that buffer and is slower besides.
enum class ProductUse { forward, input_gradient, weight_gradient, weight_gradient_into_fp32 };

class MatmulTimes {
 public:
  // allow_tf32: fp32 products may use tensor cores (torch.backends.cuda.matmul.allow_tf32).
  MatmulTimes(const Gpu& gpu, const Coefficients& coefficients, bool allow_tf32 = false);

  // [T6] batch times C[m, n] = A[m, k] B[k, n], alone on a cool GPU:
  //
  //   t = t_0 + min over tiles (T_m, T_n) and splits s in {1, 2, 4} of max(t_comp, t_mem)
  //   x = batch ceil(m / T_m) ceil(n / T_n) s / SM,   w = max(1, x + alpha (ceil(x) - x))
  //   t_comp = w 2 T_m T_n (ceil(k / s) + k_0) / (P / SM  e f_tile)
  //   t_mem  = (batch ((m + n) k b + m n b_out) + [s > 1] 8 s batch m n) / (B e_mem)
  //
  // P dense peak of the type (bf16 where the GPU lacks it: a share of the fp32 peak), B memory
  // bandwidth, b width; e, f, k_0, alpha, t_0, e_mem: coefficients `matmul_*`. Tiles 256x128,
  // 128x128, 128x64, 64x64 and their transposes. Source: the wave model of tiled matrix products,
  // fitted to 13,000 published timings (aiconfigurator, vidur, SimuMax, DeepBench, LLMServingSim).
  // Left out: clocks, cache reuse between tiles, the library's own choice of kernels. A product
  // without elements takes no time. Checked by tests/published/gemm_times_test.cpp.
  Seconds isolated(const MatrixProduct& product, ProductUse use = ProductUse::forward) const;

  // The same on a GPU at work: isolated times `matmul_sustained_derate`.
  Seconds sustained(const MatrixProduct& product, ProductUse use = ProductUse::forward) const;

 private:
  struct Tile {
    double m, n, seconds_per_k;  // of one tile on one multiprocessor
  };
  struct Rate {  // of one number format
    std::array<Tile, 6> tiles;
    double prologue;  // in steps of k
  };

  const Rate& rate(const MatrixProduct& product) const;
  double best_candidate(const MatrixProduct& product, const Rate& rate, double output_width) const;

  Rate half_, fp32_, emulated_bf16_;
  double multiprocessors_;
  double wave_share_;
  double fixed_;
  double seconds_per_byte_;
  double batched_;       // slowdown of batched products
  double accumulation_;  // slowdown of accumulation in fp32
  double derate_;
  bool emulates_bf16_;  // products in bf16 on a GPU without them
};

}  // namespace zeroplan
