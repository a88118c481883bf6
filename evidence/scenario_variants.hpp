// One scenario under the values that its open keys may have had (alternatives.hpp): which are
// likeliest, what interval covers them, and how likely it is that the scenario fits.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evidence/alternatives.hpp"
#include "evidence/scenario_prediction.hpp"

namespace zeroplan {

using MetricArray = std::array<std::optional<PredictedMetric>, kMetricCount>;

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
  Variant taken;                    // its metrics with the interval over all that is covered
  std::vector<std::string> values;  // by key, what was taken in place of the default; else empty
  double fit_probability = 0.0;     // the mean over the values
};

// The keys that matter most are varied together, in at most 32 combinations. Where nothing is known
// (`ran` false) the defaults are taken and the interval covers every combination.
//
// Of a run with a number to measure it is known that it ran: a combination then counts by its
// weight times its probability to fit. A value is taken in place of a default that is clearly less
// likely (by half), and the interval covers what is at least a twentieth as likely as what is
// taken.
//
// Each other key widens the interval by the factor of its own values.
VariantsAnswer weigh_variants(const OpenScenario& open, Variant defaults, bool ran);

}  // namespace zeroplan
