#include "model/predict/inference_time.hpp"

#include "model/plan/beside.hpp"
#include "model/predict/step_rates.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

Seconds inference_seconds(const Plan& plan) {
  const StepWork work = step_work(plan);
  const StepTraffic traffic = step_traffic(plan, work);
  return step_time(plan, work.graph, traffic).forward;
}

void add_inference_time(const Plan& policy, StepTime& step) {
  if (policy.beside == nullptr) return;
  Seconds passes;
  for (const InferencePass& pass : policy.beside->passes) {
    if (pass.moment == PassMoment::rollout) continue;  // no part of the step
    passes = passes + inference_seconds(*pass.plan);
  }
  passes = passes * static_cast<double>(policy.workload.gradient_accumulation_steps);
  step.forward = step.forward + passes;
  step.total = step.total + passes;
  step.upper_bound = step.upper_bound + passes;
  fill_rates(policy, step);
}

}  // namespace zeroplan
