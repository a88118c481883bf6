// A training run while it runs: how far it is, what it takes beside what is predicted, and whether
// its memory grows until the GPU is full (`zeroplan watch`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "evidence/importers/run_findings.hpp"
#include "evidence/measurement.hpp"
#include "evidence/scenario_prediction.hpp"

namespace zeroplan::evidence {

// Memory that a step leaves behind.
struct MemoryGrowth {
  double bytes_a_step = 0.0;
  std::optional<std::int64_t> full_at_step;  // nothing: the GPU's memory is not known
};

struct ComparedMetric {
  Metric metric = Metric::step_seconds;
  double measured = 0.0;  // in the metric's unit
  std::optional<PredictedMetric> predicted;
};

struct RunStatus {
  std::optional<RunProgress> progress;
  std::optional<double> seconds_left;
  std::vector<ComparedMetric> metrics;  // memory and time, as far as they were measured
  std::optional<MemoryGrowth> growth;
  std::int64_t checkpoints = 0;
  std::string last_checkpoint;
  bool ran_out_of_memory = false;
  std::string not_stated;  // the key without which nothing is predicted; empty where it is
};

// `measured`: of `findings`. `prediction`: of its scenario, or null.
RunStatus status_of(const RunFindings& findings,
                    const Measurement& measured,
                    const ScenarioPrediction* prediction);

// Growth of what the ranks hold between steps, or of what nvidia-smi shows: the median slope
// (Theil-Sen) of the run's second half, where nine of ten pairs of samples rise and the rise is
// more than rounding. Nothing for fewer than eight samples, or where nobody says how many steps lie
// between them.
std::optional<MemoryGrowth> memory_growth(const RunFindings& findings,
                                          const ScenarioPrediction* prediction);

// zeroplan.watch/1
Json to_json(const RunStatus& status);

}  // namespace zeroplan::evidence
