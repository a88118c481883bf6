// One scenario under the values that its open keys may have had (alternatives.hpp): which are
// likeliest, what interval covers them, and how likely it is that the scenario fits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "evidence/alternatives.hpp"
#include "evidence/predicted_metric.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::evidence {

// What one assignment of values to the open keys gives.
struct Variant {
  MetricArray metrics;
  StepResult result;
  std::string strategy;
};

using PredictVariant = std::function<Variant(const Plan&)>;

struct OpenScenario {
  const Scenario& scenario;
  const Prepared& prepared;
  const std::vector<OpenKey>& keys;
  PredictVariant predict;
};

struct VariantsAnswer {
  MetricArray metrics;  // of the defaults, with the interval over all combinations
  // Of the likeliest values, given that the scenario ran; with these values' own intervals.
  MetricArray likely;
  std::vector<std::string> likely_values;  // those that are no defaults: "attention flash"
  double fit_probability = 0.0;            // the mean over the values
};

// The keys that matter most are varied together, in at most 32 combinations. Of a time the interval
// is the hull of theirs; of memory the 90 % interval of their mixture (mixture_interval.hpp), each
// as likely as it is given that it ran, and no more than the GPU has. Each other key widens it by
// the factor of its own values.
//
// What was measured of a run tells that it ran. Each combination is then as likely as its weight
// times its probability to fit, and a value takes the place of a default that is clearly less
// likely (half as much again).
VariantsAnswer weigh_variants(const OpenScenario& open, const Variant& defaults);

}  // namespace zeroplan::evidence
