#include "evidence/calibrate/calibrate.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/diagnostic.hpp"
#include "evidence/calibrate/observe.hpp"

namespace zeroplan::evidence {
namespace {

std::vector<Observation> of_kind(const std::vector<Observation>& rows, ObservationKind kind) {
  std::vector<Observation> result;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(result), [&](const Observation& row) {
    return row.kind == kind;
  });
  return result;
}

void describe_range(const std::vector<Observation>& rows, Calibration& calibration) {
  const std::pair<const char*, double Observation::*> quantities[] = {
      {"parameters", &Observation::parameters},
      {"sequence_length", &Observation::sequence_length},
      {"tokens_per_micro_batch", &Observation::tokens_per_micro_batch},
      {"gpus", &Observation::gpus}};
  for (const auto& [what, member] : quantities) {
    SeenRange range{what, 0.0, 0.0};
    for (const Observation& row : rows) {
      if (row.*member <= 0.0) continue;  // a collective
      range.low = range.low == 0.0 ? row.*member : std::min(range.low, row.*member);
      range.high = std::max(range.high, row.*member);
    }
    if (range.high > 0.0) calibration.range.push_back(range);
  }
  std::set<std::string> gpus, origins;
  for (const Observation& row : rows) {
    gpus.insert(row.gpu);
    origins.insert(row.origin);
  }
  calibration.gpus.assign(gpus.begin(), gpus.end());
  calibration.sources = origins.size();
}

}  // namespace

Calibration calibrate(const std::vector<MeasurementFile>& files, const CalibrateOptions& options) {
  return calibrate(observe(files, options.tiers, options.jobs), options);
}

Calibration calibrate(const Observations& observations, const CalibrateOptions& options) {
  if (observations.rows.empty()) {
    const Phrase why = observations.unused.empty() ? "none"
                                                   : phrase("none: the first is skipped, {}",
                                                            observations.unused.front().reason);
    throw InputError({"command line",
                      "MEASUREMENTS",
                      "a measurement whose time or memory can be predicted",
                      why,
                      "docs/contract.md section 6"});
  }
  const auto fitted = [&](ObservationKind kind) {
    return fit_coefficients(of_kind(observations.rows, kind), options.jobs);
  };
  Calibration calibration;
  calibration.times = fitted(ObservationKind::time);
  calibration.memory = fitted(ObservationKind::memory);
  calibration.unused = observations.unused;
  describe_range(observations.rows, calibration);
  return calibration;
}

}  // namespace zeroplan::evidence
