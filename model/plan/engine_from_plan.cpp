// Plan -> EngineConfig: every knob that an engine policy takes, with the table's default where the
// file is silent.
#include <algorithm>
#include <cctype>

#include "model/check.hpp"
#include "model/engine/embedded.hpp"
#include "model/plan/resolver.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// Reads knobs of one plan with their defaults for its stage and version.
class Knobs {
 public:
  explicit Knobs(const Plan& plan)
      : config_(plan.ds_config),
        stage_(static_cast<int>(plan.ds_config.integer(Knob::zero_stage).value_or(0))),
        version_(plan.software.deepspeed) {}

  int stage() const { return stage_; }
  bool boolean(Knob knob) const {
    if (const auto said = config_.boolean(knob)) return *said;
    const KnobValue value = default_value(knob, stage_, version_);
    return std::holds_alternative<bool>(value) && std::get<bool>(value);
  }
  std::int64_t integer(Knob knob) const {
    if (const auto said = config_.integer(knob)) return *said;
    const KnobValue value = default_value(knob, stage_, version_);
    ZP_CHECK(std::holds_alternative<std::int64_t>(value), "a knob without an integer default");
    return std::get<std::int64_t>(value);
  }
  double real(Knob knob) const {
    if (const auto said = config_.real(knob)) return *said;
    const KnobValue value = default_value(knob, stage_, version_);
    ZP_CHECK(std::holds_alternative<double>(value), "a knob without a real default");
    return std::get<double>(value);
  }
  std::string text(Knob knob, const char* otherwise) const {
    return config_.text(knob).value_or(otherwise);
  }
  Elements elements(Knob knob) const { return Elements::of(integer(knob)); }
  std::optional<std::int64_t> said_integer(Knob knob) const { return config_.integer(knob); }
  std::optional<double> said_real(Knob knob) const { return config_.real(knob); }

 private:
  const DsConfig& config_;
  int stage_;
  DeepSpeedVersion version_;
};

// DeepSpeed's names of number formats (runtime/constants.py, runtime/config.py DtypeEnum).
DType dtype_named(const std::string& text, DType otherwise) {
  if (text == "fp32" || text == "float32" || text == "float") return DType::fp32;
  if (text == "fp16" || text == "float16" || text == "half") return DType::fp16;
  if (text == "bf16" || text == "bfloat16") return DType::bf16;
  return otherwise;
}

OffloadDevice device_named(const std::string& text) {
  if (text == "cpu") return OffloadDevice::cpu;
  if (text == "nvme") return OffloadDevice::nvme;
  return OffloadDevice::none;
}

// The class for a type that ds_config.json names; nothing for types whose class is not described.
// Names are compared without case (runtime/config.py get_optimizer_name).
std::optional<OptimizerKind> named_optimizer(const Knobs& knobs, bool offloaded) {
  std::string type = knobs.text(Knob::optimizer_type, "");
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  if (type == "adam" || type == "adamw") {
    if (knobs.boolean(Knob::optimizer_torch_adam)) return OptimizerKind::torch_adam;
    return offloaded ? OptimizerKind::cpu_adam : OptimizerKind::fused_adam;
  }
  if (type == "lion") return offloaded ? OptimizerKind::cpu_lion : OptimizerKind::fused_lion;
  if (type == "adagrad") {
    return offloaded ? OptimizerKind::cpu_adagrad : OptimizerKind::torch_adagrad;
  }
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
OptimizerKind trainers_adam(const Plan& plan, const Knobs& knobs) {
  const bool zero = knobs.stage() > 0;
  return zero && trainer_asks_for_fused(plan.software) ? OptimizerKind::fused_adam
                                                       : OptimizerKind::torch_adam;
}

// Which class updates the parameters: the one that the file names, else the script's. With offload,
// DeepSpeed (or accelerate for a Trainer's optimizer) replaces Adam and Lion by their CPU versions:
// runtime/engine.py _configure_basic_optimizer, accelerate utils/deepspeed.py
// map_pytorch_optim_to_deepspeed.
OptimizerKind optimizer_kind(const Plan& plan, const Knobs& knobs, bool offloaded) {
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
  }
  return OptimizerKind::fused_adam;
}

// bf16_optimizer_states asks for bf16 everywhere; CPU Adam alone also takes the model's format
// (ops/adam/cpu_adam.py fp32_optimizer_states).
DType optimizer_state_dtype(const EngineConfig& config, const Knobs& knobs) {
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

// Up to 0.16 an engine without ZeRO accumulates bf16 gradients in fp32 (runtime/engine.py
// get_data_types); later releases take the model's format everywhere.
DType accumulation_dtype(const Plan& plan, const Knobs& knobs, DType model) {
  const auto said = plan.ds_config.text(Knob::data_types_grad_accum_dtype);
  if (said) return dtype_named(*said, model);
  // In bf16 Megatron adds gradients up in fp32 (megatron/arguments.py sets
  // accumulate_allreduce_grads_in_fp32), and PipelineEngine has BF16_Optimizer's fp32 buffer for it
  // (runtime/pipe/engine.py _bf16_reduce_grads).
  if (model == DType::bf16 && runs_pipeline_engine(plan, knobs.stage())) return DType::fp32;
  const bool in_fp32 = !plan.software.deepspeed_acts(ReleaseRule::sums_bf16_in_bf16);
  if (knobs.stage() == 0 && model == DType::bf16 && in_fp32) return DType::fp32;
  return model;
}

void fill_offload(const Knobs& knobs, EngineConfig& config) {
  OffloadOptimizerConfig& optimizer = config.offload_optimizer;
  optimizer.device = device_named(knobs.text(Knob::offload_optimizer_device, "none"));
  optimizer.pin_memory = knobs.boolean(Knob::offload_optimizer_pin_memory);
  optimizer.ratio = knobs.real(Knob::offload_optimizer_ratio);
  optimizer.buffer_count = static_cast<int>(knobs.integer(Knob::offload_optimizer_buffer_count));
  optimizer.pipeline_read = knobs.boolean(Knob::offload_optimizer_pipeline_read);
  optimizer.pipeline_write = knobs.boolean(Knob::offload_optimizer_pipeline_write);
  optimizer.fast_init = knobs.boolean(Knob::offload_optimizer_fast_init);
  OffloadParameterConfig& parameter = config.offload_parameter;
  // Below stage 3 DeepSpeed reads the section and does nothing with it (runtime/engine.py).
  if (config.stage == 3) {
    parameter.device = device_named(knobs.text(Knob::offload_param_device, "none"));
  }
  parameter.pin_memory = knobs.boolean(Knob::offload_param_pin_memory);
  parameter.buffer_count = static_cast<int>(knobs.integer(Knob::offload_param_buffer_count));
  parameter.buffer_size = knobs.elements(Knob::offload_param_buffer_size);
  parameter.max_in_cpu = knobs.elements(Knob::offload_param_max_in_cpu);
  config.aio_block_size = Bytes::of(knobs.integer(Knob::aio_block_size));
  config.aio_parallelism = static_cast<int>(knobs.integer(Knob::aio_intra_op_parallelism));
  config.aio_queue_depth = static_cast<int>(knobs.integer(Knob::aio_queue_depth));
  config.aio_use_gds = knobs.boolean(Knob::aio_use_gds);
}

void fill_stage3(const Knobs& knobs, int ranks, Stage3Config& stage3) {
  stage3.prefetch_bucket = knobs.elements(Knob::stage3_prefetch_bucket_size);
  stage3.parameter_persistence_threshold = knobs.elements(Knob::stage3_param_persistence_threshold);
  if (const auto said = knobs.said_integer(Knob::stage3_model_persistence_threshold)) {
    stage3.model_persistence_threshold = Elements::of(*said);
  }
  stage3.max_live_parameters = knobs.elements(Knob::stage3_max_live_parameters);
  stage3.max_reuse_distance = knobs.elements(Knob::stage3_max_reuse_distance);
  stage3.sub_group_size = knobs.elements(Knob::sub_group_size);
  stage3.module_granularity_threshold = knobs.elements(Knob::stage3_module_granularity_threshold);
  stage3.use_all_reduce_for_fetch = knobs.boolean(Knob::stage3_use_all_reduce_for_fetch_params);
  stage3.allgather_sequential = knobs.boolean(Knob::stage3_allgather_sequential);
  if (stage3.allgather_sequential) stage3.prefetch_bucket = Elements::of(1);
  stage3.memory_efficient_linear = knobs.boolean(Knob::memory_efficient_linear);
  stage3.gather_16bit_weights_on_save =
      knobs.boolean(Knob::stage3_gather_16bit_weights_on_model_save);
  stage3.zero_init = true;
  // utils/groups.py _create_zero_param_parallel_group: not more than there are; 0 is off, as 1.
  stage3.hpz_partition_size = static_cast<int>(
      std::clamp<std::int64_t>(knobs.integer(Knob::zero_hpz_partition_size), 1, ranks));
  stage3.mics_shard_size = static_cast<int>(knobs.integer(Knob::mics_shard_size));
  stage3.mics_hierarchical_gather = knobs.boolean(Knob::mics_hierarchical_params_gather);
  stage3.quantized_weights = knobs.boolean(Knob::zero_quantized_weights);
  stage3.quantized_nontrainable_weights = knobs.boolean(Knob::zero_quantized_nontrainable_weights);
  stage3.quantized_gradients = knobs.boolean(Knob::zero_quantized_gradients);
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

EngineConfig engine_config(const Plan& plan) {
  const Knobs knobs(plan);
  EngineConfig config;
  config.release = plan.software.deepspeed_release;
  config.switched = plan.software.switched;
  config.stage = knobs.stage();
  config.data_parallel_ranks = static_cast<int>(plan.degrees.partition());
  config.ranks_per_node = static_cast<int>(plan.cluster.gpus_per_node());
  config.sequence_parallel_ranks = static_cast<int>(plan.degrees.sequence);
  config.pipeline = runs_pipeline_engine(plan, config.stage);
  config.gradient_accumulation_steps = static_cast<int>(plan.workload.gradient_accumulation_steps);
  config.model_dtype = dtype_of(plan.workload.precision);
  config.gradient_accumulation_dtype = accumulation_dtype(plan, knobs, config.model_dtype);
  config.communication_dtype =
      dtype_named(knobs.text(Knob::communication_data_type, ""), config.model_dtype);
  // engine.py _configure_distributed_model: ranks that share a sequence reduce in a dtype of their
  // own, fp32 unless the file says otherwise.
  if (config.sequence_parallel_ranks > 1) {
    config.communication_dtype =
        dtype_named(knobs.text(Knob::seq_parallel_communication_data_type, "fp32"), DType::fp32);
  }
  const bool half_master = knobs.boolean(Knob::fp16_master_weights_and_grads) ||
                           knobs.boolean(Knob::bf16_master_weights_and_grads);
  config.master_dtype = half_master ? config.model_dtype : DType::fp32;
  config.reduce_bucket = knobs.elements(Knob::reduce_bucket_size);
  config.allgather_bucket = knobs.elements(Knob::allgather_bucket_size);
  config.overlap_comm = knobs.boolean(Knob::overlap_comm);
  config.reduce_scatter = knobs.boolean(Knob::reduce_scatter);
  config.contiguous_gradients = knobs.boolean(Knob::contiguous_gradients);
  config.use_multi_rank_bucket_allreduce = knobs.boolean(Knob::use_multi_rank_bucket_allreduce);
  config.round_robin_gradients = knobs.boolean(Knob::round_robin_gradients);
  fill_offload(knobs, config);
  fill_stage3(knobs, config.data_parallel_ranks, config.stage3);
  const bool offloaded = config.offload_optimizer.device != OffloadDevice::none && config.stage > 0;
  config.optimizer = optimizer_kind(plan, knobs, offloaded);
  config.optimizer_state_dtype = optimizer_state_dtype(config, knobs);
  config.optimizer_implementation = plan.workload.optimizer_implementation;
  config.gradient_clipping = knobs.real(Knob::gradient_clipping);
  config.check_gradient_overflow =
      plan.workload.precision == Precision::fp16 || knobs.boolean(Knob::bf16_check_grad_overflow);
  config.immediate_gradient_update = knobs.boolean(Knob::bf16_immediate_grad_update);
  drop_what_is_ignored(config);
  if (plan.workload.engine == TrainingEngine::embedded) make_embedded(config);
  return config;
}

}  // namespace zeroplan
