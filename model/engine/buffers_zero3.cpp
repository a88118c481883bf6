// Buffers of stage 3 and MiCS, with offload to host memory and NVMe.
//
// Sources: runtime/zero/stage3.py _create_fp16_partitions_with_defragmentation,
// _create_fp32_partitions, initialize_optimizer_states, _setup_for_real_optimizer, _post_step;
// runtime/zero/partition_parameters.py _partition_param, _partition_param_sec.
#include <algorithm>

#include "model/engine/buffer_list.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/engine/swapping.hpp"
#include "model/releases.hpp"

namespace zeroplan::detail {

namespace {

struct Zero3 {
  BufferList& list;
  const EngineConfig& config;
  std::span<const EngineParameter> parameters;
  std::vector<SubGroup> groups;
  int ranks = 1;
  Elements partitioned;  // Q: of the trainable parameters

  Elements part(int parameter) const {
    return partitioned_numel(parameters[static_cast<std::size_t>(parameter)].numel, ranks);
  }
};

// Offloaded weights: one pinned buffer per optimizer group (pinned whatever pin_memory says), first
// seen through the partition of its first parameter.
void add_host_weights(Zero3& z) {
  for (std::size_t i = 0; i < z.groups.size(); ++i) {
    if (i > 0 && z.groups[i].group == z.groups[i - 1].group) continue;
    Elements total;
    for (const SubGroup& group : z.groups) {
      if (group.group == z.groups[i].group) total += group.numel;
    }
    EngineBuffer& buffer = z.list.add(BufferName::fp16_partitioned_groups,
                                      static_cast<int>(i),
                                      total,
                                      z.config.model_dtype,
                                      BufferPlace::host_pinned,
                                      MemoryCategory::parameters,
                                      BufferLifetime::resident);
    buffer.second_index = 0;
    buffer.elements = z.part(z.groups[i].parameters.front());
  }
}

// The pinned pieces in which zero.Init (or the conversion) made the partitions went back to torch's
// caching host allocator, which returns nothing to the system.
void add_cached_pieces(Zero3& z) {
  if (!z.config.offload_parameter.pin_memory || z.config.pin_backend != PinBackend::torch_caching) {
    return;
  }
  for (std::size_t i = 0; i < z.parameters.size(); ++i) {
    if (!z.parameters[i].trainable) continue;
    z.list
        .add(BufferName::cached_pinned_ds_tensor,
             static_cast<int>(i),
             z.part(static_cast<int>(i)),
             z.config.model_dtype,
             BufferPlace::host_pinned,
             MemoryCategory::parameters,
             BufferLifetime::resident)
        .held_by_optimizer = false;
  }
}

// Partitions too small for a file, of sub-groups that no host buffer holds, stay in the pieces in
// which zero.Init made them (stage3.py _move_to_flat_buffer, partition_parameters.py
// _partition_param).
void add_small_partitions(Zero3& z, const ParameterSwap& swap) {
  for (std::size_t g = 0; g < z.groups.size(); ++g) {
    if (swap.kept[g]) continue;
    for (const int parameter : z.groups[g].parameters) {
      if (swap.swapped[static_cast<std::size_t>(parameter)]) continue;
      z.list.add(BufferName::small_ds_tensor,
                 parameter,
                 z.part(parameter),
                 z.config.model_dtype,
                 host_place(z.config.offload_parameter.pin_memory),
                 MemoryCategory::parameters,
                 BufferLifetime::resident);
    }
  }
}

void add_nvme_weights(Zero3& z) {
  const ParameterSwap swap = parameter_swap(z.config, z.parameters, z.groups);
  const BufferPlace pool = z.config.aio_use_gds ? BufferPlace::gpu : BufferPlace::host_pinned;
  const auto exact = [&](EngineBuffer& buffer) {
    // Since 0.19 mlock; before, the caching allocator of pinned memory.
    if (z.config.acts(ReleaseRule::locks_nvme_pool)) buffer.allocated = buffer.bytes;
    buffer.held_by_optimizer = false;
  };
  exact(z.list.add(BufferName::param_swap_buffers,
                   -1,
                   swap.pool,
                   z.config.model_dtype,
                   pool,
                   MemoryCategory::communication_buffers,
                   BufferLifetime::resident));
  exact(z.list.add(BufferName::param_swap_staging,
                   -1,
                   swap.write_back,
                   z.config.model_dtype,
                   BufferPlace::host_pinned,
                   MemoryCategory::communication_buffers,
                   BufferLifetime::resident));
  for (std::size_t g = 0; g < swap.host_buffers.size(); ++g) {
    z.list.add(BufferName::param_groups_fp16_flat_cpu_memory,
               static_cast<int>(g),
               swap.host_buffers[g],
               z.config.model_dtype,
               BufferPlace::host_pinned,
               MemoryCategory::parameters,
               BufferLifetime::resident);
  }
  z.list
      .add(BufferName::param_swap_files,
           -1,
           swap.swapped_elements,
           z.config.model_dtype,
           BufferPlace::nvme,
           MemoryCategory::parameters,
           BufferLifetime::resident)
      .held_by_optimizer = false;
  add_small_partitions(z, swap);
}

void add_frozen(Zero3& z) {
  const OffloadDevice device = z.config.offload_parameter.device;
  const BufferPlace place = device == OffloadDevice::none
                                ? BufferPlace::gpu
                                : host_place(z.config.offload_parameter.pin_memory);
  const bool quantized = z.config.stage3.quantized_nontrainable_weights;
  for (std::size_t i = 0; i < z.parameters.size(); ++i) {
    if (z.parameters[i].trainable) continue;
    const Elements part = z.part(static_cast<int>(i));
    if (device == OffloadDevice::nvme && swappable(part, z.config.model_dtype, z.config)) continue;
    z.list
        .add(BufferName::frozen_ds_tensor,
             static_cast<int>(i),
             part,
             quantized ? DType::int8 : z.config.model_dtype,
             place,
             MemoryCategory::parameters,
             BufferLifetime::resident)
        .held_by_optimizer = false;
  }
}

void add_weights(Zero3& z) {
  switch (z.config.offload_parameter.device) {
    case OffloadDevice::none:
      z.list.add(BufferName::lp_param_buffer,
                 -1,
                 z.partitioned,
                 z.config.model_dtype,
                 BufferPlace::gpu,
                 MemoryCategory::parameters,
                 BufferLifetime::resident);
      break;
    case OffloadDevice::cpu:
      add_host_weights(z);
      add_cached_pieces(z);
      break;
    case OffloadDevice::nvme:
      add_nvme_weights(z);
      break;
  }
  add_frozen(z);
  const std::vector<int> persistent = persistent_parameters(z.config, z.parameters);
  if (persistent_gather(z.config, persistent.size()) == PersistentGather::none &&
      z.config.offload_parameter.device == OffloadDevice::none) {
    return;
  }
  for (std::size_t i = 0; i < persistent.size(); ++i) {
    // Gathered one by one after each step, so each is padded to a multiple of N.
    EngineBuffer& buffer = z.list.add(BufferName::persistent_parameters,
                                      static_cast<int>(i),
                                      z.part(persistent[i]) * z.ranks,
                                      z.config.model_dtype,
                                      BufferPlace::gpu,
                                      MemoryCategory::parameters,
                                      BufferLifetime::between_steps);
    buffer.elements = z.parameters[static_cast<std::size_t>(persistent[i])].numel;
  }
}

// Offload keeps the fp32 gradient of every sub-group: a pinned buffer each, on the GPU for those
// that ratio leaves there.
void add_master_gradient(Zero3& z, int index, bool swapped) {
  const SubGroup& group = z.groups[static_cast<std::size_t>(index)];
  const bool pin = z.config.offload_optimizer.pin_memory;
  const BufferPlace place = group.on_host ? host_place(pin) : BufferPlace::gpu;
  z.list
      .add(BufferName::fp32_partitioned_groups_flat,
           index,
           group.numel,
           z.config.master_dtype,
           swapped ? BufferPlace::nvme : place,
           MemoryCategory::gradients,
           BufferLifetime::resident)
      .suffix = ".grad";
  if (group.on_host || !pin || z.config.pin_backend != PinBackend::torch_caching) return;
  // Made pinned, then moved to the GPU: the host block stays in torch's cache.
  z.list
      .add(BufferName::cached_pinned_gradient,
           index,
           group.numel,
           z.config.master_dtype,
           BufferPlace::host_pinned,
           MemoryCategory::gradients,
           BufferLifetime::resident)
      .held_by_optimizer = false;
}

void add_optimizer_pool(Zero3& z, const OptimizerSwap& swap) {
  EngineBuffer& pool = z.list.add(BufferName::optimizer_swap_buffers,
                                  -1,
                                  swap.buffer * swap.buffers,
                                  z.config.master_dtype,
                                  BufferPlace::host_pinned,
                                  MemoryCategory::communication_buffers,
                                  BufferLifetime::resident);
  pool.allocated = pool.bytes;  // posix_memalign + mlock: exact
  pool.held_by_optimizer = false;
  z.list
      .add(BufferName::unswapped_gradients,
           -1,
           swap.gradients_on_gpu,
           z.config.master_dtype,
           BufferPlace::gpu,
           MemoryCategory::gradients,
           BufferLifetime::boundary_to_step)
      .held_by_optimizer = false;
}

void add_sub_group_states(Zero3& z) {
  const bool offload = offloads_optimizer(z.config);
  const bool nvme = z.config.offload_optimizer.device == OffloadDevice::nvme;
  OptimizerSwap swap;
  if (nvme) swap = optimizer_swap(z.config, z.parameters, z.groups);
  const BufferLifetime states = states_lifetime(z.config);
  for (std::size_t i = 0; i < z.groups.size(); ++i) {
    const SubGroup& group = z.groups[i];
    const bool swapped = nvme && swap.swapped[i];
    BufferPlace place = group.on_host ? BufferPlace::host_pageable : BufferPlace::gpu;
    if (swapped) place = BufferPlace::nvme;
    z.list.add(BufferName::fp32_partitioned_groups_flat,
               static_cast<int>(i),
               group.numel,
               z.config.master_dtype,
               place,
               MemoryCategory::optimizer_states,
               BufferLifetime::resident);
    add_states(z.list, -1, group.numel, place, states);
    if (!offload) continue;
    add_master_gradient(z, static_cast<int>(i), swapped);
  }
  if (nvme) add_optimizer_pool(z, swap);
}

void add_gradient_buffers(Zero3& z) {
  const bool offload = offloads_optimizer(z.config);
  z.list.add(BufferName::grad_partitions_flat_buffer,
             -1,
             z.partitioned,
             z.config.gradient_accumulation_dtype,
             offload ? host_place(z.config.offload_optimizer.pin_memory) : BufferPlace::gpu,
             MemoryCategory::gradients,
             BufferLifetime::resident);
  // Outside the bucket's buffer: gradients of a bucket without one, or the parameter that is
  // larger.
  Elements total;
  Elements largest;
  for (const EngineParameter& parameter : z.parameters) {
    if (!parameter.trainable || !parameter.used) continue;
    total += parameter.numel;
    largest = std::max(largest, parameter.numel);
  }
  Elements outside = largest > z.config.reduce_bucket ? largest : Elements::zero();
  if (!z.config.contiguous_gradients) outside = std::min(total, z.config.reduce_bucket);
  z.list
      .add(BufferName::outside_bucket,
           -1,
           outside,
           z.config.model_dtype,
           BufferPlace::gpu,
           MemoryCategory::gradients,
           BufferLifetime::backward)
      .held_by_optimizer = false;
  if (!z.config.contiguous_gradients) return;
  // One buffer, made at init and kept. Its dtype is the communication dtype; up to 0.16 the
  // model's.
  const DType dtype = z.config.acts(ReleaseRule::bucket_in_communication_dtype)
                          ? z.config.communication_dtype
                          : z.config.model_dtype;
  z.list.add(BufferName::ipg_bucket,
             -1,
             z.config.reduce_bucket,
             dtype,
             BufferPlace::gpu,
             MemoryCategory::communication_buffers,
             BufferLifetime::resident);
}

// hpZ: each rank keeps 1/z of every parameter after its first gather over all ranks, until the
// step, which drops the copies of the optimizer's groups alone: what is frozen is copied once, at
// initialisation (stage3.py invalidate_secondary_tensor; partition_parameters.py
// _partition_param_sec).
void add_secondary(Zero3& z) {
  const int shard = z.config.stage3.hpz_partition_size;
  if (shard <= 1) return;
  const BufferPlace place = z.config.offload_parameter.device == OffloadDevice::none
                                ? BufferPlace::gpu
                                : host_place(z.config.offload_parameter.pin_memory);
  for (std::size_t i = 0; i < z.parameters.size(); ++i) {
    const Elements aligned = z.part(static_cast<int>(i)) * z.ranks;
    const bool frozen = !z.parameters[i].trainable;
    const bool quantized = frozen && z.config.stage3.quantized_nontrainable_weights;
    z.list
        .add(BufferName::ds_secondary_tensor,
             static_cast<int>(i),
             aligned / shard,
             quantized ? DType::int8 : z.config.model_dtype,
             place,
             MemoryCategory::parameters,
             frozen ? BufferLifetime::resident : BufferLifetime::window_to_step)
        .held_by_optimizer = false;
  }
}

}  // namespace

void add_zero3_buffers(BufferList& list, std::span<const EngineParameter> parameters) {
  Zero3 z{.list = list,
          .config = list.config(),
          .parameters = parameters,
          .groups = sub_groups(list.config(), parameters),
          .ranks = partition_ranks(list.config()),
          .partitioned = {}};
  for (const SubGroup& group : z.groups) z.partitioned += group.numel;
  add_weights(z);
  add_sub_group_states(z);
  add_gradient_buffers(z);
  add_secondary(z);
}

}  // namespace zeroplan::detail
