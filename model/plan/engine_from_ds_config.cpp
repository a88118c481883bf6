#include "model/plan/engine_from_ds_config.hpp"

#include <algorithm>

#include "model/releases.hpp"

namespace zeroplan {
namespace {

OffloadDevice device_named(const std::string& text) {
  if (text == "cpu") return OffloadDevice::cpu;
  if (text == "nvme") return OffloadDevice::nvme;
  return OffloadDevice::none;
}

void fill_offload(const KnobReader& knobs, EngineConfig& config) {
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

void fill_stage3(const KnobReader& knobs, int ranks, Stage3Config& stage3) {
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
  // utils/groups.py _create_zero_param_parallel_group: not more than there are; 0 is off, as 1.
  // A size that does not divide the ranks is refused at stage 3 and does nothing below.
  stage3.hpz_partition_size = static_cast<int>(
      std::clamp<std::int64_t>(knobs.integer(Knob::zero_hpz_partition_size), 1, ranks));
  if (ranks % stage3.hpz_partition_size != 0) stage3.hpz_partition_size = 1;
  stage3.mics_shard_size = static_cast<int>(knobs.integer(Knob::mics_shard_size));
  stage3.mics_hierarchical_gather = knobs.boolean(Knob::mics_hierarchical_params_gather);
  stage3.quantized_weights = knobs.boolean(Knob::zero_quantized_weights);
  stage3.quantized_nontrainable_weights = knobs.boolean(Knob::zero_quantized_nontrainable_weights);
  stage3.quantized_gradients = knobs.boolean(Knob::zero_quantized_gradients);
}

// Up to 0.16 an engine without ZeRO accumulates bf16 gradients in fp32 (runtime/engine.py
// get_data_types); later releases take the model's format everywhere.
DType accumulation_dtype(const KnobReader& knobs, const EngineConfig& config) {
  const DType model = config.model_dtype;
  const std::string said = knobs.text(Knob::data_types_grad_accum_dtype, "");
  if (!said.empty()) return dtype_named(said, model);
  const bool in_fp32 = !config.acts(ReleaseRule::sums_bf16_in_bf16);
  return config.stage == 0 && model == DType::bf16 && in_fp32 ? DType::fp32 : model;
}

}  // namespace

DType dtype_named(const std::string& text, DType otherwise) {
  if (text == "fp32" || text == "float32" || text == "float") return DType::fp32;
  if (text == "fp16" || text == "float16" || text == "half") return DType::fp16;
  if (text == "bf16" || text == "bfloat16") return DType::bf16;
  return otherwise;
}

EngineConfig engine_from_ds_config(const DsConfig& file, const EngineRun& run) {
  const KnobReader knobs(file, run.release);
  EngineConfig config;
  config.release = run.release;
  config.switched = run.switched;
  config.stage = knobs.stage();
  config.data_parallel_ranks = run.data_parallel_ranks;
  config.model_dtype = run.model_dtype;
  config.gradient_accumulation_dtype = accumulation_dtype(knobs, config);
  config.communication_dtype =
      dtype_named(knobs.text(Knob::communication_data_type, ""), config.model_dtype);
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
  config.gradient_clipping = knobs.real(Knob::gradient_clipping);
  config.check_gradient_overflow =
      config.model_dtype == DType::fp16 || knobs.boolean(Knob::bf16_check_grad_overflow);
  config.immediate_gradient_update = knobs.boolean(Knob::bf16_immediate_grad_update);
  return config;
}

}  // namespace zeroplan
