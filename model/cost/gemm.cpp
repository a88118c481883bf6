#include "model/cost/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace zeroplan {
namespace {

// Batched products address their operands with strides; where a row is no multiple of 16 bytes,
// cuBLAS takes kernels that do without tensor cores. Source: NVIDIA, Matrix Multiplication
// Background User's Guide, section 2.1 (multiples of 8 elements of 16 bits).
bool without_tensor_cores(const MatrixProduct& product) {
  constexpr std::int64_t kMultiple = 8;
  return product.batch > 1 && (product.n % kMultiple != 0 || product.k % kMultiple != 0);
}

// ceil() of a quotient that is far below 2^53: by integers, because std::ceil is a library call
// without SSE4.
double ceiling(double x) {
  const auto whole = static_cast<double>(static_cast<std::int64_t>(x));
  return whole < x ? whole + 1.0 : whole;
}

}  // namespace

MatmulTimes::MatmulTimes(const Gpu& gpu, const Coefficients& c, bool allow_tf32)
    : multiprocessors_(static_cast<double>(std::max<std::int64_t>(1, gpu.sm_count.value))),
      wave_share_(c[Coefficient::matmul_wave_share]),
      fixed_(c[Coefficient::matmul_fixed_seconds]),
      seconds_per_byte_(
          1.0 / (gpu.memory_bandwidth.value.value() * c[Coefficient::matmul_memory_efficiency])),
      batched_(1.0 / c[Coefficient::matmul_batched_efficiency]),
      accumulation_(c[Coefficient::matmul_accumulation_slowdown]),
      derate_(c[Coefficient::matmul_sustained_derate]),
      emulates_bf16_(!gpu.bf16_supported) {
  const auto fill = [&](Rate& rate, double flops, bool tensor_cores, double prologue) {
    const double f128 = tensor_cores ? c[Coefficient::matmul_tile_128x128] : 1.0;
    const double f64 = tensor_cores ? c[Coefficient::matmul_tile_128x64] : 1.0;
    const double f32 = tensor_cores ? c[Coefficient::matmul_tile_64x64] : 1.0;
    const auto tile = [&](double m, double n, double factor) {
      return Tile{m, n, 2.0 * m * n * multiprocessors_ / (flops * factor)};
    };
    rate.tiles = {tile(256, 128, 1.0),
                  tile(128, 256, 1.0),
                  tile(128, 128, f128),
                  tile(128, 64, f64),
                  tile(64, 128, f64),
                  tile(64, 64, f32)};
    rate.prologue = prologue;
  };
  const double efficiency = c[Coefficient::matmul_isolated_efficiency];
  const double prologue = c[Coefficient::matmul_prologue_depth];
  const DType half = gpu.bf16_supported ? DType::bf16 : DType::fp16;
  const double half_peak = dense_peak(gpu, half).value.value();
  fill(half_, half_peak * efficiency, true, prologue);

  // The prologue takes as long as with tensor cores, which is fewer steps of a slower loop.
  const double fp32_peak = allow_tf32 && gpu.peak.tf32 ? gpu.peak.tf32->value.value()
                                                       : dense_peak(gpu, DType::fp32).value.value();
  const bool tf32 = allow_tf32 && gpu.peak.tf32.has_value();
  const double fp32_rate =
      fp32_peak * (tf32 ? efficiency : derate_ * c[Coefficient::matmul_fp32_efficiency]);
  const auto slower_prologue = [&](double rate) {
    return prologue * rate / (half_peak * efficiency);
  };
  fill(fp32_, fp32_rate, tf32, slower_prologue(fp32_rate));

  const double emulated = derate_ * dense_peak(gpu, DType::fp32).value.value() *
                          c[Coefficient::matmul_emulated_bf16_efficiency];
  fill(emulated_bf16_, emulated, false, slower_prologue(emulated));
}

const MatmulTimes::Rate& MatmulTimes::rate(const MatrixProduct& product) const {
  const bool bf16 = product.dtype == DType::bf16;
  if (bf16 && emulates_bf16_) return emulated_bf16_;
  const bool half = bf16 || product.dtype == DType::fp16;
  return half && !without_tensor_cores(product) ? half_ : fp32_;
}

double MatmulTimes::best_candidate(const MatrixProduct& product,
                                   const Rate& rate,
                                   double output_width) const {
  const double batch = static_cast<double>(product.batch);
  const double m = static_cast<double>(product.m), n = static_cast<double>(product.n),
               k = static_cast<double>(product.k);
  const double width_in = static_cast<double>(width(product.dtype));
  const double streamed = batch * ((m + n) * k * width_in + m * n * output_width);
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : rate.tiles) {
    const double tiles = batch * ceiling(m / tile.m) * ceiling(n / tile.n) / multiprocessors_;
    for (const double split : {1.0, 2.0, 4.0}) {
      const double x = tiles * split;
      const double waves = std::max(1.0, x + wave_share_ * (ceiling(x) - x));
      const double steps = ceiling(k / split) + rate.prologue;
      const double partial_sums = split > 1.0 ? 8.0 * split * batch * m * n : 0.0;
      best = std::min(best,
                      std::max(waves * tile.seconds_per_k * steps,
                               (streamed + partial_sums) * seconds_per_byte_));
    }
  }
  return best;
}

Seconds MatmulTimes::isolated(const MatrixProduct& product, ProductUse use) const {
  if (product.batch <= 0 || product.m <= 0 || product.n <= 0 || product.k <= 0) return {};
  const bool into_fp32 = use == ProductUse::weight_gradient_into_fp32;
  const double output_width = into_fp32 ? 8.0 : static_cast<double>(width(product.dtype));
  double seconds = best_candidate(product, rate(product), output_width);
  if (product.batch > 1) seconds *= batched_;
  if (into_fp32) seconds *= accumulation_;
  return Seconds::of(fixed_ + seconds);
}

Seconds MatmulTimes::sustained(const MatrixProduct& product, ProductUse use) const {
  return isolated(product, use) * derate_;
}

}  // namespace zeroplan
