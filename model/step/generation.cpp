// Sources: TRL 1.16.0 trainer/grpo_trainer.py, generation/vllm_generation.py, models/utils.py
// (unwrap_model_for_generation, prepare_deepspeed); transformers 5.17 generation/utils.py _sample,
// cache_utils.py DynamicLayer.update.
#include "model/step/generation.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/engine/partition.hpp"
#include "model/graph/activation_timeline.hpp"
#include "model/plan/trainer.hpp"
#include "model/step/rollout_memory.hpp"
#include "model/step/step_graph.hpp"

namespace zeroplan {

namespace {

// The highest rise of a pass without gradients over the layers; the head computes one token.
Bytes layers_without_cache(const Plan& policy) {
  Plan plan = policy;
  plan.inference = true;
  plan.beside = nullptr;
  plan.workload.activation_checkpointing = ActivationCheckpointing::none;
  plan.workload.use_cache = false;
  plan.workload.outputs_held = plan.workload.outputs_kept = false;
  plan.model = std::make_shared<const Model>(without_training(*plan.model));
  const ModelGraph graph = step_graph(plan);
  const auto last = static_cast<std::int32_t>(graph.instances.size()) - 1;
  Bytes most;
  for (const ActivationStep& step : activation_timeline(graph).steps) {
    if (!in_forward_phase(step.pass.pass) || step.pass.instance == last) break;
    most = std::max(most, sum(step.entry) + step.before_gradients.total);
  }
  return most;
}

}  // namespace

bool cuts_weights(const Plan& plan) {
  return runs_zero3(plan) || plan.workload.engine == TrainingEngine::fsdp;
}

DType weight_dtype(const Plan& plan) {
  if (plan.workload.engine == TrainingEngine::ddp) return plan.ddp.weight_dtype;
  if (plan.workload.engine == TrainingEngine::fsdp) return plan.fsdp.compute_dtype;
  return plan.engine.model_dtype;
}

bool has_server(const Plan& plan) {
  return plan.trainer != nullptr && plan.trainer->generates() &&
         plan.trainer->generation.by != GenerationBy::trainer;
}

bool generates_itself(const Plan& plan) {
  return plan.trainer != nullptr && plan.trainer->generates() &&
         plan.trainer->generation.by == GenerationBy::trainer;
}

Bytes server_share(const Plan& plan) {
  if (!has_server(plan) || plan.trainer->generation.by != GenerationBy::colocated) {
    return Bytes::zero();
  }
  return Bytes::nearest(static_cast<double>(plan.cluster.gpu.memory.value.count()) *
                        plan.trainer->generation.memory_share);
}

std::vector<Bytes> weights_for_generation(const Plan& plan) {
  std::vector<Bytes> weights;
  if (!cuts_weights(plan) || !plan.trainer->generation.gathers_model) return weights;
  const int ranks = std::max(1, partition_ranks(plan.engine));
  for (const EngineParameter& parameter : plan.engine_parameters) {
    weights.push_back(partitioned_numel(parameter.numel, ranks) * ranks * weight_dtype(plan));
  }
  return weights;
}

GenerationMemory generation_memory(const Plan& plan) {
  const GenerationSettings& settings = plan.trainer->generation;
  const TransformerShape& shape = plan.model->shape;
  GenerationMemory memory;
  for (const Bytes weight : weights_for_generation(plan)) memory.gathered += weight;
  const bool distils = plan.trainer->distils();
  const std::int64_t batches = distils                ? 1
                               : settings.batches > 0 ? settings.batches
                                                      : plan.workload.gradient_accumulation_steps;
  const bool rolls_out = plan.trainer->trains_values();
  const std::int64_t rows = rolls_out
                                ? rollout_rows(plan)
                                : detail::checked_product(plan.workload.micro_batch_size, batches);
  const DType computed = plan.engine.model_dtype;
  const Elements layer = Elements::of(
      detail::checked_product(detail::checked_product(rows, plan.workload.sequence_length),
                              2 * shape.kv_heads * shape.head_dim));
  memory.cache = layer * computed * shape.layers;
  memory.grown = layer * computed;
  // logits[:, -1].to(float32), its softmax, both kept while the token is drawn.
  const Elements words = Elements::of(detail::checked_product(rows, shape.vocabulary));
  memory.logits = words * computed + words * DType::fp32 * 2;
  // gkd_trainer.py: use_cache=False where activations are checkpointed.
  if (distils && plan.workload.activation_checkpointing != ActivationCheckpointing::none) {
    memory.cache = memory.grown = Bytes::zero();
    memory.forward = layers_without_cache(plan);
  }
  if (!rolls_out) return memory;
  const GenerationPeak peak = generation_peak(plan);
  if (peak.stacked + memory.cache > peak.padded) {
    memory.kept = peak.stacked;
    memory.grown = memory.logits = Bytes::zero();
  } else {
    memory.kept = peak.padded;
    memory.cache = memory.grown = memory.logits = Bytes::zero();
  }
  return memory;
}

}  // namespace zeroplan
