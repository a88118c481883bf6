#include "evidence/mixture_interval.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::evidence {
namespace {

double below(const MixturePart& part, double x) {
  const double center = 0.5 * (part.low + part.high);
  const double sd = (part.high - part.low) / (2.0 * kNinetyPercent);
  if (sd <= 0.0) return x >= center ? 1.0 : 0.0;
  return 0.5 * std::erfc((center - x) / sd / std::sqrt(2.0));
}

// The share of the mixture below x.
double share_below(const std::vector<MixturePart>& parts, double x) {
  double sum = 0.0, weights = 0.0;
  for (const MixturePart& part : parts) {
    const double possible = below(part, part.most);
    if (part.weight <= 0.0 || possible <= 0.0) continue;
    sum += part.weight * std::min(1.0, below(part, x) / possible);
    weights += part.weight;
  }
  return weights > 0.0 ? sum / weights : 0.0;
}

double quantile(const std::vector<MixturePart>& parts, double share, double low, double high) {
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = 0.5 * (low + high);
    (share_below(parts, middle) < share ? low : high) = middle;
  }
  return high;
}

}  // namespace

std::pair<double, double> mixture_interval(const std::vector<MixturePart>& parts) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const MixturePart& part : parts) {
    if (part.weight <= 0.0) continue;
    const double width = part.high - part.low;
    low = std::min(low, part.low - width);
    high = std::max(high, std::min(part.most, part.high + width));
  }
  ZP_CHECK(low <= high, "an interval of a mixture of nothing");
  return {quantile(parts, 0.05, low, high), quantile(parts, 0.95, low, high)};
}

}  // namespace zeroplan::evidence
