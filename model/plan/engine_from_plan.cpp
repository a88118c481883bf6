// Plan -> EngineConfig: every knob that an engine policy takes, with the table's default where the
// file is silent.

#include "base/written_names.hpp"
#include "model/engine/embedded.hpp"
#include "model/plan/engine_from_ds_config.hpp"
#include "model/plan/resolver.hpp"

namespace zeroplan {
namespace {

// The class for a type that ds_config.json names; nothing for types whose class is not described.
// Names are compared without case (runtime/config.py get_optimizer_name).
std::optional<OptimizerKind> named_optimizer(const KnobReader& knobs, bool offloaded) {
  const std::string type = folded(knobs.text(Knob::optimizer_type, ""), "");
  if (type == "adam" || type == "adamw") {
    if (knobs.boolean(Knob::optimizer_torch_adam)) return OptimizerKind::torch_adam;
    return offloaded ? OptimizerKind::cpu_adam : OptimizerKind::fused_adam;
  }
  if (type == "lion") return offloaded ? OptimizerKind::cpu_lion : OptimizerKind::fused_lion;
  if (type == "adagrad") {
    return offloaded ? OptimizerKind::cpu_adagrad : OptimizerKind::torch_adagrad;
  }
  if (type == "muon") return OptimizerKind::muon;
  if (type == "lamb") return OptimizerKind::fused_lamb;
  if (type == "sgd") {
    const bool momentum = knobs.said_real(Knob::optimizer_momentum).value_or(0.0) > 0.0;
    return momentum ? OptimizerKind::sgd_momentum : OptimizerKind::sgd;
  }
  return std::nullopt;
}

// Hugging Face's Trainer makes its own optimizer where the file names none: torch's AdamW, fused
// or not by release. DeepSpeed keeps it as it is; without ZeRO only its own FusedAdam gets flat
// masters, torch's a master a parameter (engine.py _configure_fp16_optimizer: fused_opts).
OptimizerKind trainers_adam(const Plan& plan, const KnobReader& knobs) {
  const bool zero = knobs.stage() > 0;
  return zero && trainer_asks_for_fused(plan.software) ? OptimizerKind::fused_adam
                                                       : OptimizerKind::torch_adam;
}

// Which class updates the parameters: the one that the file names, else the script's. With offload,
// DeepSpeed (or accelerate for a Trainer's optimizer) replaces Adam and Lion by their CPU versions:
// runtime/engine.py _configure_basic_optimizer, accelerate utils/deepspeed.py
// map_pytorch_optim_to_deepspeed.
OptimizerKind optimizer_kind(const Plan& plan, const KnobReader& knobs, bool offloaded) {
  if (const auto named = named_optimizer(knobs, offloaded)) return *named;
  switch (plan.workload.optimizer) {
    case OptimizerName::adamw:
    case OptimizerName::adam:
      if (offloaded) return OptimizerKind::cpu_adam;
      return plan.workload.frontend == Frontend::hf_trainer ? trainers_adam(plan, knobs)
                                                            : OptimizerKind::fused_adam;
    case OptimizerName::lion:
      return offloaded ? OptimizerKind::cpu_lion : OptimizerKind::fused_lion;
    case OptimizerName::adafactor:
      return OptimizerKind::adafactor;
    case OptimizerName::sgd:
      return OptimizerKind::sgd;
    case OptimizerName::adamw8bit:
      return OptimizerKind::adamw_8bit;
    case OptimizerName::muon:
      return OptimizerKind::muon;
  }
  return OptimizerKind::fused_adam;
}

// bf16_optimizer_states asks for bf16 everywhere; CPU Adam alone also takes the model's format
// (ops/adam/cpu_adam.py fp32_optimizer_states).
DType optimizer_state_dtype(const EngineConfig& config, const KnobReader& knobs) {
  if (knobs.boolean(Knob::bf16_optimizer_states)) return DType::bf16;
  const bool follows_model = config.optimizer == OptimizerKind::cpu_adam &&
                             !knobs.boolean(Knob::optimizer_fp32_optimizer_states);
  return follows_model ? config.model_dtype : DType::fp32;
}

// Megatron-DeepSpeed builds a PipelineModule of one stage, too; ZeRO 2 and 3 need
// --no-pipeline-parallel (pretrain_gpt.py model_provider).
bool runs_pipeline_engine(const Plan& plan, int stage) {
  return plan.degrees.pipeline > 1 ||
         (plan.workload.implementation == Implementation::megatron && stage < 2);
}

}  // namespace

DType dtype_of(Precision precision) {
  switch (precision) {
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::fp16;
    case Precision::fp32:
      return DType::fp32;
  }
  return DType::fp32;
}

std::vector<EngineBuffer> engine_buffers(const Plan& plan, int rank) {
  const std::span<const EngineParameter> parameters = plan.engine_parameters;
  if (plan.workload.engine == TrainingEngine::ddp) return ddp_buffers(plan.ddp, parameters);
  if (plan.workload.engine == TrainingEngine::fsdp) {
    return fsdp_buffers(plan.fsdp, fsdp_units(plan.fsdp, parameters, plan.wrapped_block));
  }
  EngineConfig config = plan.engine;
  config.rank = rank;
  return engine_buffers(config, parameters);
}

EngineConfig engine_config(const Plan& plan) {
  const KnobReader knobs(plan.ds_config, plan.software.deepspeed_release);
  EngineConfig config =
      engine_from_ds_config(plan.ds_config,
                            {.release = plan.software.deepspeed_release,
                             .switched = plan.software.switched,
                             .data_parallel_ranks = static_cast<int>(plan.degrees.partition()),
                             .model_dtype = dtype_of(plan.workload.precision)});
  config.stage3.zero_init = !plan.loads_whole;
  config.ranks_per_node = static_cast<int>(plan.cluster.gpus_per_node());
  config.sequence_parallel_ranks = static_cast<int>(plan.degrees.sequence);
  config.pipeline = runs_pipeline_engine(plan, config.stage);
  config.gradient_accumulation_steps = static_cast<int>(plan.workload.gradient_accumulation_steps);
  // In bf16 Megatron adds gradients up in fp32 (megatron/arguments.py sets
  // accumulate_allreduce_grads_in_fp32), and PipelineEngine has BF16_Optimizer's fp32 buffer for it
  // (runtime/pipe/engine.py _bf16_reduce_grads).
  if (config.pipeline && config.model_dtype == DType::bf16 &&
      !plan.ds_config.text(Knob::data_types_grad_accum_dtype)) {
    config.gradient_accumulation_dtype = DType::fp32;
  }
  // engine.py _configure_distributed_model: ranks that share a sequence reduce in a dtype of their
  // own, fp32 unless the file says otherwise.
  if (config.sequence_parallel_ranks > 1) {
    config.communication_dtype =
        dtype_named(knobs.text(Knob::seq_parallel_communication_data_type, "fp32"), DType::fp32);
  }
  const bool offloaded = config.offload_optimizer.device != OffloadDevice::none && config.stage > 0;
  config.optimizer = optimizer_kind(plan, knobs, offloaded);
  config.optimizer_state_dtype = optimizer_state_dtype(config, knobs);
  if (knobs.text(Knob::optimizer_ns_method, "gram") == "standard") {
    config.newton_schulz = NewtonSchulz::standard;
  }
  config.optimizer_implementation = plan.workload.optimizer_implementation;
  drop_what_is_ignored(config);
  if (plan.workload.engine == TrainingEngine::embedded) make_embedded(config);
  return config;
}

}  // namespace zeroplan
