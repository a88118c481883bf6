// FSDP and DDP: what they take of the scenario and of its ds_config (docs/contract.md section 1,
// "FSDP through ds_config").
#include <algorithm>
#include <string>

#include "model/families/hf_config.hpp"
#include "model/plan/engine_from_ds_config.hpp"
#include "model/plan/resolver.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// torch.optim's classes; bitsandbytes and Adafactor work on flat shards as on other tensors.
OptimizerKind torch_optimizer(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw:
    case OptimizerName::adam:
      return OptimizerKind::torch_adam;
    case OptimizerName::lion:
      return OptimizerKind::fused_lion;
    case OptimizerName::adafactor:
      return OptimizerKind::adafactor;
    case OptimizerName::sgd:
      return OptimizerKind::sgd;
    case OptimizerName::adamw8bit:
      return OptimizerKind::adamw_8bit;
    case OptimizerName::muon:
      return OptimizerKind::muon;  // refused (resolve_muon.cpp)
  }
  return OptimizerKind::torch_adam;
}

bool keeps_half_weights(const DsConfig& config) {
  return config.boolean(Knob::bf16_master_weights_and_grads).value_or(false) ||
         config.boolean(Knob::fp16_master_weights_and_grads).value_or(false);
}

// Under FSDP accelerate makes weights of 16 bits fp32, where its release does not lose them.
bool trains_as_loaded(const Plan& plan) {
  const Workload& work = plan.workload;
  return work.engine == TrainingEngine::ddp ||
         (work.engine == TrainingEngine::fsdp && work.fsdp_version == 2 &&
          plan.software.accelerate_acts(ReleaseRule::misses_upcast_for_fully_shard));
}

struct LoadedWeights {
  DType dtype = DType::fp32;
  bool pure = false;  // no mixed precision beside it
};

// What was said; else, under the Trainer, what from_pretrained does with a checkpoint's name (TRL's
// trainers of preferences say float32 themselves, trainer/utils.py create_model_from_path). A bf16
// or fp16 section of a ds_config stands for mixed precision over fp32 weights (docs/contract.md
// section 1).
LoadedWeights loaded_weights(Resolver& r) {
  const Plan& plan = r.plan;
  const DType compute = plan.engine.model_dtype;
  const bool litgpt = plan.workload.implementation == Implementation::litgpt;  // "bf16-true"
  if (keeps_half_weights(plan.ds_config) || litgpt) return {compute, true};
  if (const auto said = r.text(ScenarioKey::weights_dtype)) {
    const bool pure = *said == "pure-bf16";
    const DType dtype = *said == "fp32" ? DType::fp32 : *said == "fp16" ? DType::fp16 : DType::bf16;
    if ((pure && compute != DType::bf16) || (compute == DType::fp32 && dtype != DType::fp32)) {
      r.problem(r.origin(ScenarioKey::weights_dtype),
                pure ? "pure-bf16 with precision bf16" : "fp32 with precision fp32",
                phrase("{} with precision {}", *said, name(compute)));
    }
    return {dtype, pure};
  }
  if (plan.workload.method != Method::full) return {compute, false};
  const bool loads = plan.workload.frontend == Frontend::hf_trainer &&
                     plan.workload.implementation == Implementation::hf && trains_as_loaded(plan) &&
                     compute != DType::fp32 && plan.trainer == nullptr && !r.ds_config_mixes &&
                     plan.software.transformers_act(ReleaseRule::loads_as_stored);
  if (!loads) return {};
  // Checkpoints whose config names no format are older and in fp32 (gpt2, bert, t5).
  const DType stored = checkpoint_dtype(*plan.whole_model, DType::fp32);
  if (stored == DType::fp32) return {};
  if (plan.workload.engine == TrainingEngine::fsdp) {
    r.assume(
        phrase("accelerate {} leaves 16-bit weights as they are under FSDP2's mixed precision; "
               "others make them fp32",
               to_string(plan.software.accelerate)));
  }
  r.assume(
      phrase("weights, gradients and Adam's states are in {}, as the checkpoint is: "
             "from_pretrained of transformers {} keeps its format (--dtype fp32: with "
             "dtype=torch.float32)",
             name(stored),
             to_string(plan.software.transformers)));
  return {stored, false};
}

// torch/amp/grad_scaler.py _unscale_grads_.
void warn_of_scaled_gradients(Resolver& r) {
  const Plan& plan = r.plan;
  const bool scales = plan.workload.frontend == Frontend::hf_trainer &&
                      plan.workload.method == Method::full && plan.ddp.compute_dtype == DType::fp16;
  if (!scales || plan.ddp.weight_dtype != DType::fp16) return;
  r.warn(
      "fp16 weights under the Trainer's fp16 stop at the first step (\"Attempting to unscale FP16 "
      "gradients\"): load them in fp32 (--dtype fp32)");
}

// Keys of the file that neither engine has.
void report_ignored(Resolver& r, std::string_view engine, bool sharded) {
  constexpr std::string_view kZero = "/zero_optimization/";
  std::string keys;
  for (const auto& [knob, value] : r.plan.ds_config.values()) {
    const std::string_view pointer = pointer_of(knob);
    if (!pointer.starts_with(kZero)) continue;
    const bool offload =
        pointer.ends_with("offload_param/device") || pointer.ends_with("offload_optimizer/device");
    if (knob == Knob::zero_stage) continue;
    if (sharded && (knob == Knob::mics_shard_size || offload)) continue;
    keys += (keys.empty() ? "" : ", ") + std::string(pointer);
  }
  if (!keys.empty()) r.warn(phrase("without meaning to {}: {}", engine, keys));
}

// Keys of FSDP, two of DDP too, said under an engine that does not read them: as a flag, or true.
void report_unread(Resolver& r) {
  struct Row {
    ScenarioKey key;
    bool by_ddp;
    const char* why;
  };
  constexpr Row kRows[] = {
      {ScenarioKey::weights_dtype, true, "DeepSpeed casts the weights to its file's format"},
      {ScenarioKey::gradients_held, true, "it is about gradients of FSDP and DDP"},
      {ScenarioKey::fsdp_version, false, "it is about FSDP (--engine fsdp)"},
      {ScenarioKey::sync_each_batch, false, "it is about gradients that FSDP accumulates"},
      {ScenarioKey::load_device, false, "it is about four-bit weights that FSDP shards"}};
  const TrainingEngine engine = r.plan.workload.engine;
  for (const Row& row : kRows) {
    const ExplicitValue* said = r.scenario.find(row.key);
    if (said == nullptr || engine == TrainingEngine::fsdp) continue;
    if (row.by_ddp && engine == TrainingEngine::ddp) continue;
    if (said->origin.file != "command line" && !(said->value == Json(true))) continue;
    r.warn(phrase("{}: without effect, {}", said->origin.pointer, Phrase(row.why)));
  }
}

DType reduce_dtype(const Resolver& r) {
  const auto said = r.plan.ds_config.text(Knob::communication_data_type);
  if (!said) return r.plan.engine.model_dtype;
  return r.plan.engine.communication_dtype;
}

// FSDP offloads shards, gradients and the optimizer together (CPUOffload(offload_params=True)).
void resolve_offload(Resolver& r) {
  const OffloadDevice weights = r.plan.engine.offload_parameter.device;
  const OffloadDevice states = r.plan.engine.offload_optimizer.device;
  r.plan.fsdp.offload = weights == OffloadDevice::cpu;
  if (r.plan.fsdp.offload) return;
  if (r.plan.ds_config.text(Knob::offload_param_device) == "cpu") {
    r.warn("FSDP's offload is planned with stage 3 (FULL_SHARD) alone: the offload is ignored");
  } else if (weights != OffloadDevice::none || states != OffloadDevice::none) {
    r.warn(
        "FSDP offloads to the CPU, and only all at once (offload_param): the offload is ignored");
  }
}

// Which flat parameters adapters are in, and what the frozen weights are stored as.
void resolve_adapters(Resolver& r) {
  FsdpConfig& fsdp = r.plan.fsdp;
  const bool litgpt = r.plan.workload.implementation == Implementation::litgpt;
  if (litgpt && r.plan.workload.method == Method::qlora) {
    r.problem(r.origin(ScenarioKey::method),
              "one GPU: litgpt does not quantise a model that it shards",
              "qlora under FSDP");
  }
  // lightning.fabric's FSDPStrategy sets use_orig_params and wraps the blocks alone.
  fsdp.separate_adapters = !litgpt && fsdp.version == 1;
  if (fsdp.version == 2) {
    r.assume("adapters are in their blocks' units, and alone get gradients (fully_shard)");
  } else {
    r.assume(litgpt ? "adapters share flat parameters with frozen weights (use_orig_params): the "
                      "whole blocks get gradients"
                    : "FSDP wraps each adapter's matrices apart from the frozen weights");
  }
  if (r.plan.workload.method == Method::qlora) {
    r.assume(
        phrase("four-bit weights are stored as {} (quant_storage), so that they are sharded; their "
               "scales stay whole on every GPU",
               name(fsdp.storage_dtype)));
  }
}

// litgpt's recipes accumulate under fabric.no_backward_sync, accelerate and the Trainer under
// no_sync unless GradientAccumulationPlugin(sync_each_batch=True) says otherwise.
void resolve_sync(Resolver& r) {
  Workload& workload = r.plan.workload;
  const bool trainer = workload.frontend == Frontend::hf_trainer;
  workload.sync_each_batch =
      r.boolean(ScenarioKey::sync_each_batch).value_or(reduces_by_default(workload));
  if (!workload.sync_each_batch || !trainer) return;
  if (!r.plan.software.transformers_act(ReleaseRule::ignores_sync_each_batch)) return;
  workload.sync_each_batch = false;
  r.warn(
      phrase("sync_each_batch has no effect: the Trainer of transformers {} accumulates under "
             "no_sync all the same (4.46 to 5.1)",
             to_string(r.plan.software.transformers)));
}

void resolve_fsdp(Resolver& r) {
  Plan& plan = r.plan;
  FsdpConfig& fsdp = plan.fsdp;
  const std::int64_t stage = plan.ds_config.integer(Knob::zero_stage).value_or(3);
  fsdp.sharding = stage >= 3 ? Sharding::full : stage >= 1 ? Sharding::grad_op : Sharding::no_shard;
  if (stage == 1) r.warn("FSDP has nothing like ZeRO stage 1: taken as SHARD_GRAD_OP");
  fsdp.version = static_cast<int>(plan.workload.fsdp_version);
  if (fsdp.version == 2 && fsdp.sharding == Sharding::no_shard) {
    r.warn("fully_shard always shards: taken as FULL_SHARD");
    fsdp.sharding = Sharding::full;
  }
  fsdp.ranks = static_cast<int>(plan.degrees.data);
  const std::int64_t group = plan.ds_config.integer(Knob::mics_shard_size).value_or(-1);
  fsdp.shard_ranks = group > 0 ? static_cast<int>(group) : fsdp.ranks;
  if (fsdp.sharding == Sharding::no_shard) fsdp.shard_ranks = 1;
  if (fsdp.ranks % fsdp.shard_ranks != 0) {
    r.problem({r.ds_config_file, std::string(pointer_of(Knob::mics_shard_size))},
              phrase("a number of ranks that divides {}", fsdp.ranks),
              std::to_string(group));
    fsdp.shard_ranks = fsdp.ranks;
  }
  fsdp.gradient_accumulation_steps = static_cast<int>(plan.workload.gradient_accumulation_steps);
  const bool litgpt = plan.workload.implementation == Implementation::litgpt;
  const bool adapters = plan.workload.method != Method::full;
  const LoadedWeights loaded = loaded_weights(r);
  // Four-bit weights go without: sharded as gradients and states alone, their first backward pass
  // stops at "FSDP does not support changing the parameters".
  fsdp.original_parameters = plan.workload.method != Method::qlora;
  fsdp.casts_adapters = plan.workload.lora.autocast;
  fsdp.compute_dtype = plan.engine.model_dtype;
  fsdp.storage_dtype = casts_frozen_weights(plan) ? DType::fp32 : loaded.dtype;
  const bool as_stored = r.scenario.find(ScenarioKey::weights_dtype) == nullptr &&
                         plan.software.transformers_act(ReleaseRule::loads_as_stored);
  fsdp.loaded_dtype = as_stored ? fsdp.compute_dtype : loaded.dtype;
  const bool upcasts = !adapters && !loaded.pure && loaded.dtype != DType::fp32 &&
                       plan.workload.frontend == Frontend::hf_trainer && !trains_as_loaded(plan);
  if (upcasts) {
    fsdp.storage_dtype = DType::fp32;
    r.assume(
        phrase("accelerate makes trained weights that were loaded in {} fp32 under FSDP's "
               "mixed precision (--dtype pure-bf16: without it)",
               name(loaded.dtype)));
  }
  fsdp.reduce_dtype = reduce_dtype(r);
  resolve_sync(r);
  fsdp.reduces_every_micro_step = plan.workload.sync_each_batch;
  fsdp.gradients_held = plan.workload.gradients_held;
  fsdp.double_quant = plan.workload.lora.weights.double_quant;
  fsdp.optimizer = torch_optimizer(plan.workload.optimizer);
  fsdp.optimizer_implementation = plan.workload.optimizer_implementation;
  if (fsdp.gradient_accumulation_steps > 1) {
    r.assume(
        fsdp.reduces_every_micro_step
            ? plan.workload.frontend == Frontend::native
                  ? "gradients are reduced in every micro-step: a native loop without no_sync"
                  : "gradients are reduced in every micro-step: sync_each_batch"
            : phrase("gradients stay unsharded until the last micro-step: {}",
                     Phrase(litgpt ? "litgpt's no_backward_sync"
                                   : "accelerate's no_sync (--sync-each-batch true: sharded)")));
  }
  r.assume("FSDP wraps each transformer block, prefetches backward and limits all-gathers");
  resolve_offload(r);
  if (adapters) resolve_adapters(r);
}

void resolve_ddp(Resolver& r) {
  Plan& plan = r.plan;
  DdpConfig& ddp = plan.ddp;
  const std::int64_t stage = plan.ds_config.integer(Knob::zero_stage).value_or(0);
  if (stage > 0) r.warn(phrase("DDP shards nothing: ZeRO stage {} is ignored", stage));
  ddp.ranks = static_cast<int>(plan.degrees.data);
  ddp.gradient_accumulation_steps = static_cast<int>(plan.workload.gradient_accumulation_steps);
  ddp.compute_dtype = plan.engine.model_dtype;
  ddp.gradients_held = plan.workload.gradients_held;
  ddp.double_quant = plan.workload.lora.weights.double_quant;
  ddp.autocast_adapters = plan.workload.lora.autocast;
  const bool adapters = plan.workload.method != Method::full;
  ddp.weight_dtype = loaded_weights(r).dtype;
  warn_of_scaled_gradients(r);
  ddp.optimizer = torch_optimizer(plan.workload.optimizer);
  ddp.optimizer_implementation = plan.workload.optimizer_implementation;
  if (ddp.weight_dtype != ddp.compute_dtype) {
    r.assume(phrase("DDP with {} weights and autocast", name(ddp.weight_dtype)));
  }
  if (adapters && ddp.weight_dtype == ddp.compute_dtype && ddp.compute_dtype != DType::fp32) {
    // As torchtune's recipes and the scripts of fsdp_qlora load it; a Trainer that is not told a
    // dtype would load fp32.
    r.assume(
        phrase("the frozen model is loaded in {}", name(kPrecisionNames, plan.workload.precision)));
  }
}

}  // namespace

DType checkpoint_dtype(const Model& model, DType otherwise) {
  const std::string named = model.torch_dtype.value_or("");
  return named == kMxfp4Checkpoint ? DType::bf16 : dtype_named(named, otherwise);
}

std::vector<int> wrapped_blocks(const Model& model) {
  std::vector<int> block_of_module(model.modules.size(), -1);
  std::vector<int> block_of(model.parameters.size(), -1);
  std::vector<bool> seen(model.parameters.size(), false);
  int blocks = 0;
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const Module& module = model.modules[i];
    if (module.parent >= 0) {
      const auto parent = static_cast<std::size_t>(module.parent);
      block_of_module[i] = block_of_module[parent];
      const bool in_list = model.modules[parent].type == "ModuleList";
      if (in_list && block_of_module[parent] < 0) block_of_module[i] = blocks++;
    }
    for (const int parameter : module.parameters) {
      const auto index = static_cast<std::size_t>(parameter);
      if (!seen[index]) block_of[index] = block_of_module[i];
      seen[index] = true;  // a tied weight stays with its first user
    }
  }
  return block_of;
}

bool casts_frozen_weights(const Plan& plan) {
  const Workload& work = plan.workload;
  return work.engine == TrainingEngine::fsdp && work.fsdp_version == 2 &&
         work.method == Method::lora && work.frontend == Frontend::hf_trainer &&
         work.implementation == Implementation::hf && work.precision != Precision::fp32 &&
         plan.software.accelerate_acts(ReleaseRule::casts_frozen_for_fully_shard);
}

bool reduces_by_default(const Workload& workload) {
  return workload.frontend == Frontend::native && workload.implementation != Implementation::litgpt;
}

void resolve_torch_engine(Resolver& r) {
  const TrainingEngine engine = r.plan.workload.engine;
  report_unread(r);
  if (engine == TrainingEngine::fsdp && r.boolean(ScenarioKey::sync_each_batch) &&
      r.plan.workload.gradient_accumulation_steps == 1) {
    r.warn("sync_each_batch has no effect without gradient accumulation");
  }
  if (engine == TrainingEngine::fsdp) {
    report_ignored(r, "FSDP", true);
    r.plan.wrapped_block = wrapped_blocks(*r.plan.model);
    resolve_fsdp(r);
  } else if (engine == TrainingEngine::ddp) {
    report_ignored(r, "DDP", false);
    resolve_ddp(r);
  }
}

}  // namespace zeroplan
