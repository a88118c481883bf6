#include "model/predict/step_rates.hpp"

#include "model/hardware/hardware.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/model_flops.hpp"

namespace zeroplan {
namespace {

FlopsPerSecond dense_rate(const Plan& plan) {
  return dense_peak(plan.cluster.gpu, plan.engine.model_dtype).value;
}

}  // namespace

void fill_rates(const Plan& plan, StepTime& step) {
  const Workload& workload = plan.workload;
  const double sequences = static_cast<double>(workload.micro_batch_size) *
                           static_cast<double>(workload.gradient_accumulation_steps);
  // A sample of DPO is two sequences.
  const std::int64_t rows = plan.trainer == nullptr ? 1 : plan.trainer->rows();
  const double tokens = sequences * static_cast<double>(rows * workload.sequence_length);
  const double seconds = step.total.seconds();
  const double ranks = static_cast<double>(plan.degrees.data);
  step.samples_per_second = sequences * ranks / seconds;
  step.tokens_per_second_per_gpu =
      tokens * ranks / static_cast<double>(plan.degrees.world) / seconds;
  const Flops token = model_flops_per_token(*plan.whole_model, workload.sequence_length);
  step.model_flops_per_gpu = FlopsPerSecond::of(step.tokens_per_second_per_gpu * token.value());
  step.mfu = step.model_flops_per_gpu / dense_rate(plan);
}

}  // namespace zeroplan
