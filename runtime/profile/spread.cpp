#include "runtime/profile/spread.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.hpp"

namespace zeroplan::runtime {
namespace {

double at_share(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

double Spread::relative_sd() const {
  if (n < 2 || median <= 0.0) return 0.0;
  return (q3 - q1) / 1.349 * 1.2533 / std::sqrt(static_cast<double>(n)) / median;
}

Spread spread_of(std::vector<double> values, std::int64_t discarded) {
  ZP_CHECK(!values.empty(), "the spread of nothing");
  std::sort(values.begin(), values.end());
  return {at_share(values, 0.5),
          at_share(values, 0.25),
          at_share(values, 0.75),
          static_cast<std::int64_t>(values.size()),
          discarded};
}

std::vector<double> repeat_timed(const std::function<double()>& timed,
                                 const Repetition& repetition) {
  std::vector<double> kept;
  double sum = 0.0;
  for (std::int64_t i = 0;; ++i) {
    const double seconds = timed();
    if (i < repetition.discard) continue;
    kept.push_back(std::max(seconds, 1e-9));  // the clock's own grain
    sum += seconds;
    const auto count = static_cast<std::int64_t>(kept.size());
    if (count >= repetition.most) break;
    constexpr std::int64_t kFewest = 3;  // with fewer there are no quartiles
    if (count >= kFewest && sum >= repetition.patience.seconds()) break;
    if (count >= repetition.least && sum >= repetition.long_enough.seconds()) break;
  }
  return kept;
}

std::vector<double> repeat(const std::function<void()>& work,
                           const Repetition& repetition,
                           const std::function<void()>& before) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&] {
    if (before) before();
    const Clock::time_point begin = Clock::now();
    work();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  return repeat_timed(timed, repetition);
}

std::vector<double> rates(double amount, std::vector<double> seconds) {
  for (double& value : seconds) value = amount / value;
  return seconds;
}

}  // namespace zeroplan::runtime
