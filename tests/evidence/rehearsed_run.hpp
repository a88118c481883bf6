// The simulation of what a line of measurements describes: the memory of the rank that was
// measured.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "evidence/measurement.hpp"
#include "model/plan/plan.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan {

inline StepResult simulate_measured(const Measurement& run) {
  SimulateOptions options;
  options.rank = run.rank;
  return simulate(resolve(run.scenario), options);
}

// How far the prediction is from what was measured of it, as a share of that.
inline double deviation(const Measurement& run, Metric metric, Bytes predicted) {
  const auto bytes = static_cast<double>(run.measured.bytes(metric).count());
  return std::abs(static_cast<double>(predicted.count()) / bytes - 1.0);
}

// Of reserved memory, with its sign: from the nearer of the two ends that the range of events
// leaves (docs/rehearsal.md; half the range is the line's uncertainty), 0 between them.
inline double from_nearer_end(const Measurement& run, Bytes predicted) {
  const auto most = static_cast<double>(run.measured.bytes(Metric::peak_reserved_bytes).count());
  const double half = run.uncertainty.of(Metric::peak_reserved_bytes).value_or(0.0);
  const double least = most * (1.0 - 2.0 * half);
  const auto said = static_cast<double>(predicted.count());
  if (said > most) return said / most - 1.0;
  return std::min(0.0, said / least - 1.0);
}

// Of values in ascending order.
inline double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

}  // namespace zeroplan
