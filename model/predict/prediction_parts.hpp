// The parts of a prediction and the result they make. predict() takes all of them from the analytic
// estimate, simulate() takes those that are not simulated from there.
#pragma once

#include <vector>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_spread.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan {

// The GPU that a result shows.
struct ShownMemory {
  GpuMemory gpu;
  bool simulated = false;
  MemoryPrediction analytic;  // of the same rank: how uncertain its memory is
};

// Of the rank that decides whether the plan fits; in a pipeline its stage may be another than the
// one that is shown.
struct TightestMemory {
  MemoryPrediction memory;  // its GPU as estimated or simulated; host memory and NVMe of the plan
  GpuVerdict verdict;
};

struct PredictedStep {
  StepTime time;
  Interval<Seconds> interval;
  double of_analytic = 1.0;  // time.total as a share of its analytic estimate
  std::vector<NetworkAlternative> at_network;
  std::vector<Phrase> warnings;
};

struct PredictionParts {
  ShownMemory shown;
  TightestMemory tightest;
  PredictedStep step;
  std::vector<Phrase> graph_assumptions;
};

// A step as estimated, without other networks.
PredictedStep analytic_step(const StepPrediction& estimate);
// The 90 % interval of a step's time around `total`.
Interval<Seconds> step_interval(Seconds total, double relative_sd);

// What its releases are known to do wrong for the plan, one clause each, with the way out.
std::vector<Phrase> release_traps(const Plan& plan);

StepResult assemble(const Plan& plan, PredictionParts parts, const PredictOptions& options);

}  // namespace zeroplan
