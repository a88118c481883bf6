// Which buffer of an engine: one enumerator for each attribute that leads to storages, and its path
// in DeepSpeed's or PyTorch's objects.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_names.hpp"

namespace zeroplan {

// DeepSpeed's attribute has the enumerator's name, where that is possible.
enum class BufferName : std::uint8_t {
  module_parameters,
  module_gradients,
  bf16_groups,
  bf16_groups_flat,
  bit16_groups,
  bit16_groups_flat,
  fp16_groups,
  fp16_groups_flat,
  fp32_groups,
  fp32_groups_flat,
  fp32_groups_flat_partition,
  fp32_groups_gradients_flat,
  single_partition_of_fp32_groups,
  param_buffer_of_bit16_for_cpu_offload_groups,
  state,
  quant_state,
  ipg_bucket,
  outside_bucket,
  averaged_gradients,
  all_grad_tensors,
  grads_in_partition,
  grad_accum,
  accumulated_grads_in_cpu,
  temp_grad_buffer_for_cpu_offload,
  temp_grad_buffer_for_gpu_offload,
  fp16_partitioned_groups,
  fp32_partitioned_groups_flat,
  grad_partitions_flat_buffer,
  lp_param_buffer,
  persistent_parameters,
  param_groups_fp16_flat_cpu_memory,
  small_ds_tensor,
  frozen_ds_tensor,
  cached_pinned_ds_tensor,
  cached_pinned_gradient,
  ds_secondary_tensor,
  optimizer_swap_buffers,
  unswapped_gradients,
  param_swap_buffers,
  param_swap_files,
  param_swap_staging,
  reducer_buckets,
  flat_param_cpu_grad,
  flat_param_local_shard,
  flat_param_saved_grad_shard,
  flat_param_grad,
};

inline constexpr EnumNames<BufferName, 46> kBufferPaths{{
    "module.parameters",
    "module.gradients",
    "bf16_groups",
    "bf16_groups_flat",
    "bit16_groups",
    "bit16_groups_flat",
    "fp16_groups",
    "fp16_groups_flat",
    "fp32_groups",
    "fp32_groups_flat",
    "fp32_groups_flat_partition",
    "fp32_groups_gradients_flat",
    "single_partition_of_fp32_groups",
    "param_buffer_of_bit16_for_cpu_offload_groups",
    "state",
    "quant_state",
    "ipg_buckets[dtype].buffer",
    "gradients outside the bucket's buffer",
    "averaged_gradients",
    "all_grad_tensors",
    "grads_in_partition",
    "grad_accum",
    "accumulated_grads_in_cpu",
    "temp_grad_buffer_for_cpu_offload",
    "temp_grad_buffer_for_gpu_offload",
    "fp16_partitioned_groups",
    "fp32_partitioned_groups_flat",
    "grad_partitions_flat_buffer",
    "lp_param_buffer",
    "persistent_parameters",
    "param_groups_fp16_flat_cpu_memory",
    "small ds_tensor",
    "frozen ds_tensor",
    "cached pinned ds_tensor",
    "cached pinned gradient",
    "ds_secondary_tensor",
    "optimizer_swapper.swap_buffer_manager",
    "optimizer_swapper.unswapped_gradients",
    "param_swapper.buffers",
    "param_swapper.files",
    "param_swapper.partitioned_swap_buffer",
    "reducer.buckets",
    "flat_param._cpu_grad",
    "flat_param._local_shard",
    "flat_param._saved_grad_shard",
    "flat_param.grad",
}};
static_assert(static_cast<std::size_t>(BufferName::flat_param_grad) + 1 ==
                  kBufferPaths.names.size(),
              "a path for each buffer");

// "ipg_buckets[dtype].buffer": what replay looks up in a recorded engine.
constexpr std::string_view path_of(BufferName buffer) { return name(kBufferPaths, buffer); }

}  // namespace zeroplan
