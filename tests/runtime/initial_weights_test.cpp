// Weights at the start: the same numbers whatever stretch is asked for, by however many threads.
#include "runtime/data/initial_weights.hpp"

#include <cmath>
#include <vector>

#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

Parameter matrix() {
  Parameter made;
  made.name = "layers.0.weight";
  made.shape = {7, 33};
  return made;
}

std::vector<float> drawn(std::int64_t first, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  initial_weights(matrix(), 5, Elements::of(first), values);
  return values;
}

TEST_CASE("a weight depends on its place alone, wherever a stretch begins and ends") {
  const std::vector<float> all = drawn(0, 7 * 33);
  for (std::int64_t first = 0; first < 9; ++first) {
    for (std::int64_t count = 0; count < 9; ++count) {
      CAPTURE(first, count);
      const auto begin = all.begin() + first;
      CHECK(drawn(first, count) == std::vector<float>(begin, begin + count));
    }
  }
}

TEST_CASE("weights are drawn from a normal distribution") {
  double sum = 0.0;
  double squares = 0.0;
  double neighbours = 0.0;
  constexpr std::int64_t kCount = 200'000;
  const std::vector<float> values = drawn(1, kCount);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    sum += value;
    squares += value * value;
    if (i > 0) neighbours += value * static_cast<double>(values[i - 1]);
  }
  // Five standard deviations of each estimate.
  const double root = std::sqrt(static_cast<double>(kCount));
  CHECK(std::abs(sum / kCount) < 5.0 * 0.02 / root);
  CHECK(std::abs(squares / kCount / 4e-4 - 1.0) < 5.0 * std::sqrt(2.0) / root);
  CHECK(std::abs(neighbours / kCount / 4e-4) < 5.0 / root);
}

}  // namespace
}  // namespace zeroplan::runtime
