#include "runtime/optimizer/adamw.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.hpp"
#include "base/parallel_for.hpp"

// One source, compiled for several instruction sets, the best chosen when the program starts. Not
// under sanitizers, whose start-up comes after the choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ZP_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ZP_VECTOR_CLONES
#endif

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kThreaded = 1 << 18;  // elements from which a second thread pays

// No product is fused with a sum, so that every instruction set gives the same bits.
ZP_VECTOR_CLONES void update(float* __restrict weights,
                             float* __restrict first,
                             float* __restrict second,
                             const float* __restrict gradient,
                             std::int64_t count,
                             const AdamWFactors& f) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * f.scale;
    const float m = f.beta1 * first[i] + (1.0F - f.beta1) * g;
    const float v = f.beta2 * second[i] + (1.0F - f.beta2) * (g * g);
    first[i] = m;
    second[i] = v;
    weights[i] = weights[i] * f.keep - f.rate * (m / (std::sqrt(v) * f.correction2 + f.epsilon));
  }
}

// Sixteen partial sums, whatever the vectors' width.
ZP_VECTOR_CLONES double squares(const float* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t k = 0; k < kLanes; ++k) {
      const double value = values[i + k];
      lanes[k] += value * value;
    }
  }
  double sum = 0.0;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

AdamWFactors adamw_factors(const AdamWOptions& options, std::int64_t step, double gradient_scale) {
  const double lr = options.learning_rate;
  const auto t = static_cast<double>(step);
  return {.keep = static_cast<float>(1.0 - lr * options.weight_decay),
          .rate = static_cast<float>(lr / (1.0 - std::pow(options.beta1, t))),
          .beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .correction2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, t))),
          .epsilon = static_cast<float>(options.epsilon),
          .scale = static_cast<float>(gradient_scale)};
}

void adamw(const AdamWState& state,
           const AdamWOptions& options,
           std::int64_t step,
           double gradient_scale,
           int threads) {
  const auto count = static_cast<std::int64_t>(state.weights.size());
  ZP_CHECK(state.first_moment.size() == state.weights.size() &&
               state.second_moment.size() == state.weights.size() &&
               state.gradient.size() == state.weights.size(),
           "weights, moments and gradient have one length");
  const AdamWFactors factors = adamw_factors(options, step, gradient_scale);
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    update(state.weights.data() + begin,
           state.first_moment.data() + begin,
           state.second_moment.data() + begin,
           state.gradient.data() + begin,
           end - begin,
           factors);
  };
  const std::int64_t parts =
      std::clamp<std::int64_t>(count / kThreaded, 1, static_cast<std::int64_t>(threads));
  parallel_for(static_cast<std::size_t>(parts), parts, [&](std::size_t i) {
    const auto part = static_cast<std::int64_t>(i);
    run(count * part / parts, count * (part + 1) / parts);
  });
}

double sum_of_squares(std::span<const float> values) {
  return squares(values.data(), static_cast<std::int64_t>(values.size()));
}

bool has_inf_or_nan(std::span<const float> values) {
  return !std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace zeroplan::runtime
