#include "model/step/rollout_memory.hpp"

#include <algorithm>

#include "model/plan/trainer.hpp"

namespace zeroplan {
namespace {

// Micro-batches after which the trainer drops its variables. accelerate steps the optimizer after
// all of gradient_accumulation_steps, whatever num_mini_batches is.
std::int64_t micro_batches_of_mini_batch(const Plan& plan) {
  return std::max<std::int64_t>(
      1, plan.workload.gradient_accumulation_steps / plan.trainer->rollout.mini_batches);
}

bool autocasts(const Plan& plan) {
  return plan.workload.engine == TrainingEngine::ddp && plan.ddp.autocasts();
}

}  // namespace

RolloutLogits rollout_logits(const Plan& plan) {
  RolloutLogits logits;
  logits.rows = samples_of_rollout(plan);
  logits.chunk = rollout_rows(plan);
  logits.tokens = plan.trainer->generation.completion_length;
  const Elements words = Elements::of(plan.model->shape.vocabulary);
  logits.token = words * DType::fp32 * logits.chunk;
  logits.row = words * DType::fp32 * logits.tokens;
  return logits;
}

RolloutCache rollout_cache(const Plan& plan) {
  const TransformerShape& shape = plan.model->shape;
  const std::int64_t tokens =
      detail::checked_product(rollout_rows(plan), plan.workload.sequence_length);
  const Elements tensor =
      Elements::of(detail::checked_product(tokens, shape.kv_heads * shape.head_dim));
  // generate() runs outside of accelerate's autocast.
  const DType dtype = autocasts(plan) ? plan.ddp.weight_dtype : plan.engine.model_dtype;
  return {2 * shape.layers, tensor * dtype};
}

GenerationPeak generation_peak(const Plan& plan) {
  const RolloutLogits logits = rollout_logits(plan);
  return {logits.row * (logits.rows + logits.chunk), logits.all() * 2};
}

Bytes LoopVariables::sum() const {
  Bytes total = probabilities;
  for (const Bytes bytes : outputs) total += bytes;
  return total;
}

LoopVariables loop_variables(const Plan& plan) {
  const TransformerShape& shape = plan.model->shape;
  const DType dtype = autocasts(plan) ? DType::fp32 : plan.engine.model_dtype;
  const std::int64_t rows = plan.workload.micro_batch_size;
  const std::int64_t tokens = detail::checked_product(rows, plan.workload.sequence_length);
  const Elements hidden = Elements::of(detail::checked_product(tokens, shape.hidden));
  LoopVariables variables;
  variables.outputs.push_back(Elements::of(detail::checked_product(tokens, shape.vocabulary)) *
                              dtype);
  for (std::int64_t i = 0; i <= shape.layers; ++i) variables.outputs.push_back(hidden * dtype);
  const std::int64_t scored =
      detail::checked_product(rows, plan.trainer->generation.completion_length);
  variables.probabilities = Elements::of(detail::checked_product(scored, shape.vocabulary)) * dtype;
  return variables;
}

bool finds_variables(const Plan& plan, int micro_step) {
  return micro_step > 0 && any_finds_variables(plan);
}

bool any_finds_variables(const Plan& plan) { return micro_batches_of_mini_batch(plan) > 1; }

}  // namespace zeroplan
