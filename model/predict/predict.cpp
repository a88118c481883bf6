#include "model/predict/predict.hpp"

#include <utility>

#include "model/predict/analytic_estimate.hpp"
#include "model/predict/prediction_parts.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan {
namespace {

StepResult predict(const Plan& plan,
                   const AnalyticEstimate& estimate,
                   const PredictOptions& options) {
  const MemoryPrediction memory = estimate.memory();
  PredictionParts parts;
  parts.shown = {memory.gpu, false, memory};
  parts.tightest = {memory, gpu_verdict(memory, options)};
  parts.step = analytic_step(estimate.time(options));
  parts.step.at_network = estimate.on_networks(usual_networks(plan, options));
  parts.graph_assumptions = estimate.graph().assumptions;
  return assemble(plan, std::move(parts), options);
}

}  // namespace

StepResult predict(const Plan& plan, const PredictOptions& options) {
  if (!plan.stages.empty()) return predict(plan, AnalyticEstimate(plan), options);
  const StepWork work = step_work(plan);
  return predict(plan, AnalyticEstimate(plan, work), options);
}

}  // namespace zeroplan
