#include "runtime/optimizer/adamw.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

std::vector<float> wave(std::size_t size, double phase) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = static_cast<float>(std::sin(phase + 0.37 * static_cast<double>(i)));
  }
  return values;
}

struct State {
  std::vector<float> weights, first, second, gradient;
  explicit State(std::size_t size)
      : weights(wave(size, 0.1)), first(size), second(size), gradient(wave(size, 2.0)) {}
  void update(const AdamWOptions& options, std::int64_t step, double scale, int threads) {
    adamw({weights, first, second, gradient}, options, step, scale, threads);
  }
};

TEST_CASE("AdamW follows its equations") {
  const AdamWOptions options{.learning_rate = 0.02, .weight_decay = 0.1};
  State state(1003);
  std::vector<double> w(state.weights.begin(), state.weights.end());
  std::vector<double> m(w.size());
  std::vector<double> v(w.size());
  for (int step = 1; step <= 5; ++step) {
    state.update(options, step, 0.5, 1);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = 0.5 * static_cast<double>(state.gradient[i]);
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      const double corrected = m[i] / (1.0 - std::pow(0.9, step));
      const double root = std::sqrt(v[i] / (1.0 - std::pow(0.999, step)));
      w[i] = w[i] * (1.0 - 0.02 * 0.1) - 0.02 * corrected / (root + 1e-8);
    }
  }
  double largest = 0.0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    largest = std::max(largest, std::abs(w[i] - static_cast<double>(state.weights[i])));
  }
  CHECK(largest < 2e-6);
}

TEST_CASE("the number of threads does not change a bit") {
  constexpr std::size_t kSize = (1 << 20) + 13;
  State alone(kSize);
  State together(kSize);
  for (int step = 1; step <= 2; ++step) {
    alone.update({}, step, 1.0, 1);
    together.update({}, step, 1.0, 4);
  }
  CHECK(alone.weights == together.weights);
  CHECK(alone.second == together.second);
}

TEST_CASE("sums of squares keep small parts of long vectors") {
  const std::vector<float> ones(1 << 20, 1e-4F);
  CHECK(std::abs(sum_of_squares(ones) / (1048576.0 * 1e-8) - 1.0) < 1e-6);
  std::vector<float> values = {1.0F, 2.0F};
  CHECK_FALSE(has_inf_or_nan(values));
  values[1] = std::nanf("");
  CHECK(has_inf_or_nan(values));
  values[1] = -INFINITY;
  CHECK(has_inf_or_nan(values));
}

}  // namespace
}  // namespace zeroplan::runtime
