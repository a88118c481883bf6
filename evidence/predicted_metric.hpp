// A metric of a measurement as it is predicted, with its 90 % interval.
#pragma once

#include <array>
#include <optional>

#include "evidence/measurement.hpp"

namespace zeroplan::evidence {

// In the metric's own unit.
struct PredictedMetric {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
};

using MetricArray = std::array<std::optional<PredictedMetric>, kMetricCount>;

}  // namespace zeroplan::evidence
