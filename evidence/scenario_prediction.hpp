// What is predicted of one measured scenario: every metric with its 90 % interval.
//
// A source rarely states everything. For a key that it leaves open the default is predicted, the
// interval covers what the usual other values give, and the probability that the scenario fits is
// the mean over them. Beside it stands what is likely of a run that is known to have run
// (scenario_variants.hpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evidence/predicted_metric.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::evidence {

struct ScenarioPrediction {
  MetricArray metrics;  // `fits` has none
  // With the likeliest values of open keys, given that it ran; no largest micro-batch.
  MetricArray likely;
  std::vector<std::string> likely_values;  // of them, those that are no defaults
  StepResult result;                       // of the defaults
  double fit_probability = 0.0;            // over what is open
  bool fits = false;                       // with the confidence asked for
  std::string strategy;                    // "ZeRO-3, optimizer on cpu", "FSDP full"
  std::vector<std::string> not_stated;     // keys of the scenario with alternatives
  const std::optional<PredictedMetric>& of(Metric metric) const {
    return metrics[static_cast<std::size_t>(metric)];
  }
};

struct ScenarioPredictionOptions {
  double confidence = 0.95;           // of the verdict
  std::optional<int> rank;            // whose memory, where data-parallel ranks differ
  bool host_memory = false;           // predict host_peak_bytes
  bool max_micro_batch_size = false;  // search for it
};

// Why a scenario cannot be compared with a measurement, or nothing: model, GPU, sequence length or
// micro-batch size is not stated.
std::optional<std::string> missing_key(const Scenario& scenario, bool needs_micro_batch = true);

// Throws InputError for what resolve() refuses, and for a rank that the scenario has not;
// alternatives that it refuses are left out.
ScenarioPrediction predict_scenario(const Scenario& scenario,
                                    const ScenarioPredictionOptions& options = {});

// Floating-point operations with recomputation over those without: full checkpointing runs the
// forward pass of every block twice.
//   (6 N + 12 L h s + 2 N_blocks + 4 L h s) / (6 N + 12 L h s)
// N parameters (4 N where frozen), N_blocks those of wrapped blocks, L layers, h hidden, s tokens.
// Source: docs/contract.md section 4.
double recomputation_factor(const Plan& plan);

}  // namespace zeroplan::evidence
