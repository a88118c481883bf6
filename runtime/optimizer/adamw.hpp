// AdamW on the CPU, exact: one pass over weights, moments and gradient, vectorised and threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/units.hpp"
#include "model/dtype.hpp"

namespace zeroplan::runtime {

// Decoupled weight decay. Source: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2; the
// defaults are torch.optim.AdamW's.
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

// One tensor to be updated; all of the same length.
struct AdamWState {
  std::span<float> weights;
  std::span<float> first_moment;
  std::span<float> second_moment;
  std::span<const float> gradient;
};

// The `step`-th update, from 1:
//   g = gradient_scale * gradient                     (unscaling and clipping in the same pass)
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   w = w (1 - lr decay) - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + epsilon)
// The same bits for any number of threads. Checked by tests/runtime/adamw_test.cpp.
void adamw(const AdamWState& state,
           const AdamWOptions& options,
           std::int64_t step,
           double gradient_scale,
           int threads);

// One tensor to be updated, on any device; all of `elements` in one dtype. rounded: where the new
// weights go in that format, too, or null; on the same side.
struct UpdateState {
  std::byte* weights = nullptr;
  std::byte* first_moment = nullptr;
  std::byte* second_moment = nullptr;
  const std::byte* gradient = nullptr;
  Elements elements;
  DType dtype = DType::fp32;
  std::byte* rounded = nullptr;
  DType rounded_dtype = DType::bf16;
};

// What the update of an element multiplies with, in fp32: the same on every device.
//   w = w keep - rate (m / (sqrt(v) correction2 + epsilon)), no product fused with a sum
struct AdamWFactors {
  float keep, rate, beta1, beta2, correction2, epsilon, scale;
};
AdamWFactors adamw_factors(const AdamWOptions& options, std::int64_t step, double gradient_scale);

// Sum of squares in fp64, in an order that depends on the length alone.
double sum_of_squares(std::span<const float> values);
bool has_inf_or_nan(std::span<const float> values);

}  // namespace zeroplan::runtime
