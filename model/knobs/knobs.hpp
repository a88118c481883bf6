// THE table of knobs: one row for every key of ds_config.json (docs/design.md rule 3). The parser,
// the emitter, the linter, the tuner and docs/knobs.md iterate it; nobody else spells a key.
//
// The rows are data, configs/knobs.json, in the order in which a file is written; knob_row.hpp says
// what a row says. A key that DeepSpeed has and zeroplan does not model is a row without
// `modelled`; a section that is only carried along is one row of type object.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/knobs/knob_row.hpp"

namespace zeroplan {

// A row of the table. The keys that code names have names here, those of their rows and in the same
// order; the numbers behind them stand for the other rows.
enum class Knob : std::uint16_t {
  // Batch
  train_batch_size,
  train_micro_batch_size_per_gpu,
  gradient_accumulation_steps,
  managed_gradient_accumulation,
  sequence_parallel_size,
  gradient_clipping,
  prescale_gradients,
  gradient_predivide_factor,
  gradient_allreduce_op,
  communication_data_type,
  seq_parallel_communication_data_type,
  disable_allgather,
  // ZeRO
  zero_stage,
  contiguous_gradients,
  reduce_scatter,
  reduce_bucket_size,
  use_multi_rank_bucket_allreduce,
  compute_grad_norm,
  allgather_partitions,
  allgather_bucket_size,
  overlap_comm,
  elastic_checkpoint,
  sub_group_size,
  round_robin_gradients,
  legacy_stage1,
  stage3_prefetch_bucket_size,
  stage3_param_persistence_threshold,
  stage3_model_persistence_threshold,
  stage3_max_live_parameters,
  stage3_max_reuse_distance,
  stage3_gather_16bit_weights_on_model_save,
  stage3_module_granularity_threshold,
  stage3_use_all_reduce_for_fetch_params,
  stage3_allgather_sequential,
  zero_hpz_partition_size,
  zero_quantized_weights,
  zero_quantized_nontrainable_weights,
  zero_quantized_gradients,
  mics_shard_size,
  mics_hierarchical_params_gather,
  memory_efficient_linear,
  leaf_module,
  zenflow,
  // Offload of parameters
  offload_param_device,
  offload_param_nvme_path,
  offload_param_buffer_count,
  offload_param_buffer_size,
  offload_param_max_in_cpu,
  offload_param_pin_memory,
  // Offload of optimizer states
  offload_optimizer_device,
  offload_optimizer_nvme_path,
  offload_optimizer_buffer_count,
  offload_optimizer_pin_memory,
  offload_optimizer_pipeline_read,
  offload_optimizer_pipeline_write,
  offload_optimizer_fast_init,
  offload_optimizer_ratio,
  offload_optimizer_super_offload,
  // NVMe input and output
  aio_block_size,
  aio_queue_depth,
  aio_intra_op_parallelism,
  aio_single_submit,
  aio_overlap_events,
  aio_use_gds,
  // Number formats
  fp16_enabled,
  fp16_auto_cast,
  fp16_loss_scale,
  fp16_initial_scale_power,
  fp16_loss_scale_window,
  fp16_hysteresis,
  fp16_min_loss_scale,
  fp16_master_weights_and_grads,
  bf16_enabled,
  bf16_immediate_grad_update,
  bf16_check_grad_overflow,
  bf16_master_weights_and_grads,
  bf16_optimizer_states,
  data_types_grad_accum_dtype,
  amp_enabled,
  amp_opt_level,
  torch_autocast_enabled,
  // Optimizer and scheduler
  optimizer_type,
  optimizer_lr,
  optimizer_betas,
  optimizer_eps,
  optimizer_weight_decay,
  optimizer_momentum,
  optimizer_torch_adam,
  optimizer_adam_w_mode,
  optimizer_fp32_optimizer_states,
  optimizer_max_grad_norm,
  optimizer_ns_method,
  scheduler_type,
  scheduler_total_num_steps,
  scheduler_cycle_min_lr,
  scheduler_cycle_max_lr,
  zero_allow_untested_optimizer,
  zero_force_ds_cpu_optimizer,
  // Activation checkpointing
  activation_partition_activations,
  activation_cpu_checkpointing,
  activation_contiguous_memory_optimization,
  activation_number_checkpoints,
  // Parallelism
  pipeline_stages,
  pipeline_partition,
  pipeline_activation_checkpoint_interval,
  pipeline_pipe_partitioned,
  pipeline_use_reentrant,
  tensor_parallel_autotp_size,
  tensor_parallel_preset_model,
  tensor_parallel_partition_config,
  // Elastic training
  elasticity_enabled,
  elasticity_ignore_non_elastic_batch_info,
  // Compilation
  compile_deepcompile,
  // Logging and profiling
  steps_per_print,
  wall_clock_breakdown,
  memory_breakdown,
  timers_throughput_enabled,
  timers_throughput_synchronized,
  comms_logger_enabled,
  // Autotuning by DeepSpeed
  autotuning_enabled,
};

// All rows, in the order of a file. Read once.
std::span<const KnobRow> knob_rows();

const KnobRow& knob_row(Knob knob);
Knob first_without_name();
inline std::string_view pointer_of(Knob knob) { return knob_row(knob).pointer; }

// Whether a key is written before another: rows are one array.
inline bool is_before(Knob a, Knob b) { return &knob_row(a) < &knob_row(b); }

// The default of a release at a ZeRO stage; a literal of kind none where it is derived or absent.
KnobLiteral default_literal(Knob knob, int stage, const Version& release);
// The same of a series, as its last release has it.
KnobLiteral default_literal(Knob knob, int stage, DeepSpeedVersion version);

// The knob of a canonical JSON pointer.
std::optional<Knob> find_knob(std::string_view pointer);

// A knob by another spelling of its pointer.
struct AliasMatch {
  Knob knob;
  AliasKind kind = AliasKind::alternative;
};
std::optional<AliasMatch> find_alias(std::string_view pointer);

// A section: an object of ds_config.json that holds knobs ("/zero_optimization", "" for the file).
struct KnobSection {
  std::string_view pointer;
  // DeepSpeed refuses keys it does not know here, from this version on; none: it never does.
  std::optional<DeepSpeedVersion> strict_since;
};
// The section of that pointer, or nothing.
std::optional<KnobSection> find_section(std::string_view pointer);

// Names of the keys and subsections directly in a section, canonical and other spellings, without
// repetition: what a misspelled key is compared with.
std::vector<std::string_view> names_in_section(std::string_view section);

std::string_view name(KnobType type);
std::string_view name(KnobUnit unit);
// "hidden size squared": what `auto` becomes; empty for AutoRule::unresolved.
std::string_view describe(AutoRule rule);
// "500000000", "cpu", "[0.9, 0.999]"; empty for none.
std::string to_string(const KnobLiteral& literal);

// One line of the knob reference, ready for a table.
struct KnobReferenceRow {
  std::string section;  // what encloses the key: "zero_optimization/offload_param", "top level"
  std::string key;
  std::string type;
  std::string unit;
  std::string default_value;
  std::string automatic;
  std::string stages;
  std::string affects;
  std::string other_names;
  bool modelled = false;
  std::string description;
  std::string source;
};
KnobReferenceRow reference_row(const KnobRow& row);
std::vector<KnobReferenceRow> knob_reference();
// The text of docs/knobs.md.
std::string knob_reference_markdown();

}  // namespace zeroplan
