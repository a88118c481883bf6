#include <string>
#include <utility>

#include "model/hardware/cluster.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/releases.hpp"
#include "model/step/generation.hpp"
#include "tuner/remedy_catalogue.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {
namespace {

// The trainer as it was said, with one setting changed.
Json trainer_with(const Json& said, const char* key, Json value) {
  const std::string trainer = said.is_string() ? said.as_string() : said.members().front().first;
  Json settings = said.is_string() ? Json::object() : said.members().front().second;
  settings[key] = std::move(value);
  return Json::object({{trainer, settings}});
}

// vLLM holds at least the weights in 16 bits, and the keys and values of one sequence. Its
// context, its graphs and its activations come on top.
Bytes least_server_bytes(const Plan& plan) {
  const TransformerShape& shape = plan.model->shape;
  const std::int64_t cached =
      2 * shape.layers * shape.kv_heads * shape.head_dim * plan.workload.sequence_length;
  const Elements held = count_parameters(*plan.model).total + Elements::of(cached);
  return held * DType::bf16 / plan.trainer->generation.tensor_parallel;
}

// resolve() says why not.
bool has_sequence_ranks(const Plan& plan, std::int64_t ranks) {
  const TransformerShape& shape = plan.model->shape;
  return has_ulysses(*plan.model, plan.workload.attention) && shape.heads % ranks == 0 &&
         (shape.kv_heads % ranks == 0 || ranks % shape.kv_heads == 0) &&
         plan.workload.sequence_length % ranks == 0;
}

}  // namespace

void RemedyCatalogue::add_slower() {
  add_generation_in_parts();
  add_colocated_server();
  add_sequence_ranks();
  add_checkpointing();
  add_precision();
  add_sync();
  add_stages();
  add_micro_batch();
  add_activation_offload();
  add_offload();
}

void RemedyCatalogue::add_checkpointing() {
  if (workload_.activation_checkpointing == ActivationCheckpointing::full) return;
  if (plan_.trainer != nullptr && plan_.trainer->trains_values()) return;
  if (free_ && !says(ScenarioKey::activation_checkpointing)) return;
  add(RemedyPrice::speed,
      MemoryCategory::activations,
      "use full activation checkpointing (--ckpt full)",
      {{ScenarioKey::activation_checkpointing,
        Json(name(kActivationCheckpointingNames, ActivationCheckpointing::full))}});
}

// Weights gathered one by one while the policy generates, where all are there at once.
void RemedyCatalogue::add_generation_in_parts() {
  if (!generates_itself(plan_) || (!free_ && !sharded_)) return;
  if (!plan_.trainer->generation.gathers_model || plan_.trainer->distils()) return;
  const Json trainer = trainer_with(trainer_said(), "gathers_model", Json(false));
  add(RemedyPrice::speed,
      MemoryCategory::parameters,
      phrase("gather the weights part by part while it generates: ds3_gather_for_generation=False "
             "(--trainer '{}')",
             trainer.dump()),
      {{ScenarioKey::trainer, trainer}});
}

// vLLM beside the training: its share while it does not generate, and how large that is.
void RemedyCatalogue::add_colocated_server() {
  if (server_share(plan_) == Bytes::zero()) return;
  const GenerationSettings& now = plan_.trainer->generation;
  if (!now.sleeps) {
    const Json trainer = trainer_with(trainer_said(), "sleeps", Json(true));
    add(RemedyPrice::speed,
        MemoryCategory::parameters,
        phrase("let vLLM give its memory back while the model trains: vllm_enable_sleep_mode, "
               "sleep_level 1 of ms-swift (--trainer '{}')",
               trainer.dump()),
        {{ScenarioKey::trainer, trainer}})
        .decides = true;
  }
  std::vector<std::int64_t> shares;  // in percent
  constexpr std::int64_t kStep = 5;
  for (std::int64_t share = kStep; static_cast<double>(share) < 100.0 * now.memory_share - 0.5;
       share += kStep) {
    if (plan_.cluster.gpu.memory.value * share / 100 >= least_server_bytes(plan_)) {
      shares.push_back(share);
    }
  }
  if (shares.empty()) return;
  const auto trainer_of = [said = trainer_said()](std::int64_t share) {
    return trainer_with(said, "memory_share", Json(static_cast<double>(share) / 100.0));
  };
  found_.push_back({RemedyPrice::speed,
                    MemoryCategory::parameters,
                    true,
                    std::move(shares),
                    [trainer_of, before = now.memory_share](std::int64_t share) {
                      return phrase(
                          "vllm_gpu_memory_utilization {:.2f} instead of {:.2f}, which "
                          "holds vLLM's weights and a sequence's keys and values "
                          "(--trainer '{}')",
                          static_cast<double>(share) / 100.0,
                          before,
                          trainer_of(share).dump());
                    },
                    [trainer_of](std::int64_t share) {
                      return Variation{{{ScenarioKey::trainer, trainer_of(share)}}, {}, {}};
                    }});
}

// Ulysses puts each sequence on several GPUs, where the batch cannot be smaller.
void RemedyCatalogue::add_sequence_ranks() {
  const bool may = deepspeed_ && plan_.trainer == nullptr && plan_.stages.empty() &&
                   plan_.degrees.tensor == 1 && plan_.degrees.sequence == 1 &&
                   !plan_.engine.embedded && !says(ScenarioKey::sequence_parallel);
  if (!may || (!free_ && workload_.micro_batch_size > 1)) return;
  const CategoryBytes& peak = subject_.result().gpu.breakdown_at_peak;
  const Bytes of_tokens = at(peak, MemoryCategory::activations) + at(peak, MemoryCategory::logits);
  if (of_tokens * 2 < subject_.result().gpu.peak_total) return;
  std::vector<std::int64_t> sizes;
  for (std::int64_t ranks = plan_.degrees.data; ranks > 1; --ranks) {
    if (plan_.degrees.data % ranks == 0 && has_sequence_ranks(plan_, ranks)) {
      sizes.push_back(ranks);
    }
  }
  if (sizes.empty()) return;
  const std::int64_t steps = workload_.gradient_accumulation_steps;
  const auto said = [steps, free = free_](std::int64_t ranks) {
    return free ? std::string() : " --gas " + std::to_string(steps * ranks);
  };
  found_.push_back(
      {RemedyPrice::speed,
       logits_decide() ? MemoryCategory::logits : MemoryCategory::activations,
       false,
       std::move(sizes),
       [said](std::int64_t ranks) {
         return phrase(
             "share each sequence among {} GPUs: DeepSpeed-Ulysses "
             "(--sequence-parallel {}{})",
             ranks,
             ranks,
             said(ranks));
       },
       [steps, free = free_](std::int64_t ranks) {
         Variation change{{{ScenarioKey::sequence_parallel, Json(ranks)}}, {}, {}};
         if (free) return change;
         change.changes.push_back({ScenarioKey::gradient_accumulation_steps, Json(steps * ranks)});
         return change;
       }});
}

void RemedyCatalogue::add_precision() {
  if (workload_.precision != Precision::fp32) return;
  const bool bf16 = plan_.cluster.gpu.bf16_supported;
  std::vector<Change> changes = {{ScenarioKey::precision, Json(bf16 ? "bf16" : "fp16")}};
  if (deepspeed_ && has_file()) {
    changes.push_back({bf16 ? Knob::bf16_enabled : Knob::fp16_enabled, Json(true)});
  }
  add(RemedyPrice::speed,
      MemoryCategory::activations,
      phrase("train in {} instead of fp32 (--precision {})",
             bf16 ? "bf16" : "fp16",
             bf16 ? "bf16" : "fp16"),
      std::move(changes));
}

void RemedyCatalogue::add_sync() {
  if (workload_.engine != TrainingEngine::fsdp || workload_.gradient_accumulation_steps == 1 ||
      workload_.sync_each_batch || workload_.frontend != Frontend::hf_trainer ||
      plan_.software.transformers_act(ReleaseRule::ignores_sync_each_batch)) {
    return;
  }
  add(RemedyPrice::speed,
      MemoryCategory::gradients,
      "reduce gradients in every micro-step: sync_each_batch (--sync-each-batch true)",
      {{ScenarioKey::sync_each_batch, Json(true)}});
}

void RemedyCatalogue::add_stages() {
  if (free_ || !deepspeed_ || plan_.degrees.partition() == 1 || !plan_.stages.empty()) return;
  for (std::int64_t stage = plan_.engine.stage + 1; stage <= 3; ++stage) {
    add(RemedyPrice::speed,
        stage == 3   ? MemoryCategory::parameters
        : stage == 2 ? MemoryCategory::gradients
                     : MemoryCategory::optimizer_states,
        phrase("ZeRO stage {} instead of {} (--stage {})", stage, plan_.engine.stage, stage),
        {{Knob::zero_stage, Json(stage)}});
  }
}

// The same batch in smaller parts.
void RemedyCatalogue::add_micro_batch() {
  const std::int64_t now = workload_.micro_batch_size;
  const std::int64_t steps = workload_.gradient_accumulation_steps;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size < now; ++size) {
    if (now * steps % size == 0) sizes.push_back(size);
  }
  if (sizes.empty()) return;
  found_.push_back({RemedyPrice::speed,
                    logits_decide() ? MemoryCategory::logits : MemoryCategory::activations,
                    false,
                    std::move(sizes),
                    [now, steps](std::int64_t size) {
                      return phrase("use micro-batch {} instead of {} (--mbs {} --gas {})",
                                    size,
                                    now,
                                    size,
                                    now * steps / size);
                    },
                    [now, steps](std::int64_t size) {
                      return Variation{
                          {{ScenarioKey::micro_batch_size, Json(size)},
                           {ScenarioKey::gradient_accumulation_steps, Json(now * steps / size)}},
                          {},
                          {}};
                    }});
}

bool RemedyCatalogue::logits_decide() const {
  const CategoryBytes& peak = subject_.result().gpu.breakdown_at_peak;
  return at(peak, MemoryCategory::logits) > at(peak, MemoryCategory::activations);
}

void RemedyCatalogue::add_activation_offload() {
  if (workload_.activation_offload != ActivationOffload::none || one_pool()) return;
  if (workload_.activation_checkpointing != ActivationCheckpointing::full) return;
  if (plan_.trainer != nullptr || !plan_.stages.empty() || plan_.engine.embedded) return;
  add(RemedyPrice::speed,
      MemoryCategory::activations,
      "keep the checkpoints of activations in host memory (--activation-offload cpu)",
      {{ScenarioKey::activation_offload, cpu()}});
}

// Nothing is gained where host and GPU have one pool.
bool RemedyCatalogue::one_pool() const { return plan_.cluster.gpu.shares_host_memory(); }
void RemedyCatalogue::add_offload() {
  if (one_pool()) return;
  if (free_ || !deepspeed_ || plan_.engine.embedded || !plan_.stages.empty()) {
    add_fsdp_offload();
    return;
  }
  // Below stage 1 there is nothing that could be offloaded.
  std::vector<Change> optimizer;
  if (plan_.engine.stage == 0) {
    optimizer.push_back({Knob::zero_stage, Json(std::int64_t{2})});
  }
  optimizer.push_back({Knob::offload_optimizer_device, cpu()});
  if (plan_.engine.offload_optimizer.device == OffloadDevice::none) {
    add(RemedyPrice::speed,
        MemoryCategory::optimizer_states,
        "offload the optimizer to the CPU (--offload-optimizer cpu)",
        std::move(optimizer));
  }
  if (plan_.engine.offload_parameter.device != OffloadDevice::none) return;
  if (plan_.engine.offload_optimizer.device == OffloadDevice::none) {
    add(RemedyPrice::speed,
        MemoryCategory::parameters,
        "offload the weights to the CPU (--stage 3 --offload-param cpu)",
        {{Knob::zero_stage, Json(std::int64_t{3})}, {Knob::offload_param_device, cpu()}});
  }
  add(RemedyPrice::speed,
      MemoryCategory::parameters,
      "offload optimizer and weights to the CPU (--stage 3 --offload-optimizer cpu "
      "--offload-param cpu)",
      {{Knob::zero_stage, Json(std::int64_t{3})},
       {Knob::offload_optimizer_device, cpu()},
       {Knob::offload_param_device, cpu()}});
}

void RemedyCatalogue::add_fsdp_offload() {
  const bool fsdp = workload_.engine == TrainingEngine::fsdp;
  const bool may =
      fsdp ? !plan_.fsdp.offload : workload_.method == Method::qlora && may_change_engine();
  if (free_ || !may) return;
  std::vector<Change> changes;
  if (!fsdp) {
    changes = changes_to(TrainingEngine::fsdp);
    changes.push_back({ScenarioKey::load_device, cpu()});
  }
  changes.push_back({Knob::offload_param_device, cpu()});  // behind the stage that has it
  add(RemedyPrice::speed,
      MemoryCategory::parameters,
      fsdp ? "offload shards and optimizer to the CPU (--offload-param cpu)"
           : "train under FSDP with the four-bit weights on the host (--engine fsdp --stage 3 "
             "--load-device cpu --offload-param cpu)",
      std::move(changes));
}

}  // namespace zeroplan::tuner
