#include "model/engine/buffer_name.hpp"

#include <array>

namespace zeroplan {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(BufferName::flat_param_grad) + 1>
    kPaths = {
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
};
static_assert(!kPaths.back().empty(), "a path for each buffer, in the order of BufferName");

}  // namespace

std::string_view path_of(BufferName name) { return kPaths[static_cast<std::size_t>(name)]; }

}  // namespace zeroplan
