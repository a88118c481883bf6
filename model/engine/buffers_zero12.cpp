// Buffers of stages 1 and 2 (DeepSpeedZeroOptimizer).
//
// Sources: runtime/zero/stage_1_and_2.py __init__ (flat groups, master partition, offload buffers),
// initialize_optimizer_states (offload: the fp32 gradient stays), setup_buckets and
// _release_ipg_buffers, copy_grads_in_partition, independent_gradient_partition_epilogue,
// get_flat_partition, async_accumulate_grad_in_cpu_via_gpu. offload_optimizer.device nvme acts as
// cpu here: there is no swapper in these stages.
#include <algorithm>

#include "model/engine/buffer_list.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/releases.hpp"

namespace zeroplan::detail {

namespace {

struct Zero12 {
  BufferList& list;
  const EngineConfig& config;
  std::span<const EngineParameter> parameters;
  FlatPartition partition;
  std::vector<OwnedSlice> owned;
  bool offload = false;
  bool contiguous = true;
  // Stage 1 with another accumulation dtype: gradients move to param.grad_accum in the hooks.
  bool separate_accumulation = false;
  bool accumulates = false;  // more than one micro-step a window
};

// 0.12.6 leaves the master pageable, 0.14.5 to 0.17.6 pin it whatever pin_memory says.
BufferPlace offloaded_master_place(const EngineConfig& config) {
  if (config.acts(ReleaseRule::pins_master_as_asked)) {
    return host_place(config.offload_optimizer.pin_memory);
  }
  return host_place(config.acts(ReleaseRule::pins_master_always));
}

// get_flat_partition makes it of whole parameters, where the rank needs but its part of them.
void add_momentum(Zero12& z, int group) {
  Elements whole;
  for (const OwnedSlice& slice : z.owned) {
    if (slice.group == group)
      whole += z.partition.numels[static_cast<std::size_t>(slice.parameter)];
  }
  EngineBuffer& momentum = z.list.add(BufferName::state,
                                      group,
                                      whole,
                                      z.config.gradient_accumulation_dtype,
                                      BufferPlace::gpu,
                                      MemoryCategory::optimizer_states,
                                      BufferLifetime::first_boundary_on);
  momentum.suffix = momentum_state();
}

void add_group_states(Zero12& z) {
  const BufferPlace pinned = host_place(z.config.offload_optimizer.pin_memory);
  const BufferPlace master = z.offload ? offloaded_master_place(z.config) : BufferPlace::gpu;
  for (std::size_t g = 0; g < z.partition.groups.size(); ++g) {
    const FlatGroup& group = z.partition.groups[g];
    const int index = static_cast<int>(g);
    z.list.add(BufferName::bit16_groups_flat,
               index,
               group.aligned,
               z.config.model_dtype,
               BufferPlace::gpu,
               MemoryCategory::parameters,
               BufferLifetime::resident);
    z.list.add(BufferName::single_partition_of_fp32_groups,
               index,
               group.partition,
               z.config.master_dtype,
               master,
               MemoryCategory::optimizer_states,
               BufferLifetime::resident);
    // States are made by the first step; CPU optimizers make theirs pageable.
    if (is_muon_group(group, z.parameters)) {
      add_momentum(z, index);
    } else {
      // Beside Muon's group, which is first, each group's come with its own step.
      add_states(z.list,
                 z.config.optimizer == OptimizerKind::muon ? index : -1,
                 group.partition,
                 z.offload ? BufferPlace::host_pageable : BufferPlace::gpu,
                 states_lifetime(z.config));
    }
    if (!z.offload) continue;
    z.list
        .add(BufferName::single_partition_of_fp32_groups,
             index,
             group.partition,
             z.config.master_dtype,
             pinned,
             MemoryCategory::gradients,
             BufferLifetime::resident)
        .suffix = ".grad";
    // Before, the step moved the fp32 master to the GPU and cast there.
    if (z.config.acts(ReleaseRule::casts_weights_on_host)) {
      z.list.add(BufferName::param_buffer_of_bit16_for_cpu_offload_groups,
                 index,
                 group.partition,
                 z.config.model_dtype,
                 pinned,
                 MemoryCategory::communication_buffers,
                 BufferLifetime::resident);
    }
  }
}

void add_offload_scratch(Zero12& z) {
  if (!z.offload) return;
  Elements largest;
  for (std::size_t i = 0; i < z.partition.numels.size(); ++i) {
    if (z.partition.places[i].group >= 0) largest = std::max(largest, z.partition.numels[i]);
  }
  const BufferPlace host = host_place(z.config.offload_optimizer.pin_memory);
  z.list.add(BufferName::temp_grad_buffer_for_cpu_offload,
             -1,
             largest,
             z.config.model_dtype,
             host,
             MemoryCategory::communication_buffers,
             BufferLifetime::resident);
  z.list.add(BufferName::temp_grad_buffer_for_gpu_offload,
             -1,
             largest,
             z.config.model_dtype,
             BufferPlace::gpu,
             MemoryCategory::communication_buffers,
             BufferLifetime::resident);
  // One pinned tensor of the whole parameter for each owned one. Stage 1 accumulates on the GPU;
  // up to 0.16 it made these all the same, in its only reduction of the window.
  const bool old_stage1 = z.config.stage == 1 && !z.config.acts(ReleaseRule::counts_micro_steps);
  const bool low_precision_master = z.config.master_dtype != DType::fp32;
  if (!z.accumulates || low_precision_master || (z.config.stage == 1 && !old_stage1)) return;
  std::vector<int> id(z.partition.numels.size(), -1);
  int count = 0;
  for (const FlatGroup& group : z.partition.groups) {
    for (int parameter : group.declared) id[static_cast<std::size_t>(parameter)] = count++;
  }
  for (const OwnedSlice& slice : z.owned) {
    const auto i = static_cast<std::size_t>(slice.parameter);
    if (!z.parameters[i].used) continue;
    z.list.add(BufferName::accumulated_grads_in_cpu,
               id[i],
               z.partition.numels[i],
               z.config.model_dtype,
               host,
               MemoryCategory::gradients,
               old_stage1 ? BufferLifetime::first_step_on : BufferLifetime::first_backward_on);
  }
}

void add_buckets(Zero12& z) {
  if (!z.contiguous) return;
  const bool overlap = z.config.overlap_comm && !z.config.pipeline;
  // Stage 1 makes them in the first backward of a window and frees them after the last.
  const BufferLifetime lifetime =
      z.config.stage == 1 ? BufferLifetime::window : BufferLifetime::backward;
  int count = overlap ? 2 : 1;
  if (z.config.pipeline) ++count;  // reduce_gradients(pipeline_parallel=True) appends one
  for (int i = 0; i < count; ++i) {
    z.list.add(BufferName::ipg_bucket,
               i,
               z.config.reduce_bucket,
               z.config.model_dtype,
               BufferPlace::gpu,
               MemoryCategory::communication_buffers,
               lifetime);
  }
}

// Gradients that are reduced as they come but not from the bucket's buffer: those of a bucket
// without a contiguous buffer (with overlap other ranks' are cleared one bucket later), and the one
// parameter that is larger than the bucket.
void add_unbuffered_gradients(Zero12& z) {
  const bool overlap = z.config.overlap_comm && !z.config.pipeline;
  if (z.config.stage == 1 && (!overlap || z.accumulates)) return;  // they wait, see below
  const BufferLifetime lifetime =
      z.config.stage == 2 ? BufferLifetime::backward : BufferLifetime::boundary_backward;
  Elements total;
  Elements largest;
  for (const EngineParameter& parameter : z.parameters) {
    if (!parameter.trainable || !parameter.used) continue;
    total += parameter.numel;
    largest = std::max(largest, parameter.numel);
  }
  Elements elements = largest > z.config.reduce_bucket ? largest : Elements::zero();
  if (!z.contiguous) elements = std::min(total, z.config.reduce_bucket * (overlap ? 2 : 1));
  z.list
      .add(BufferName::outside_bucket,
           -1,
           elements,
           z.config.model_dtype,
           BufferPlace::gpu,
           MemoryCategory::gradients,
           lifetime)
      .held_by_optimizer = false;
}

// Gradients that wait for the boundary (stage 1).
void add_waiting_gradients(Zero12& z) {
  if (z.config.stage != 1) return;
  const bool overlap = z.config.overlap_comm && !z.config.pipeline;
  if (overlap && !z.accumulates && !z.separate_accumulation) return;  // reduced as they come
  for (std::size_t g = 0; g < z.partition.groups.size(); ++g) {
    const std::vector<int>& members = z.partition.groups[g].declared;
    if (z.separate_accumulation) {
      for (int parameter : members) {
        if (!z.parameters[static_cast<std::size_t>(parameter)].used) continue;
        z.list
            .add(BufferName::grad_accum,
                 parameter,
                 z.partition.numels[static_cast<std::size_t>(parameter)],
                 z.config.gradient_accumulation_dtype,
                 BufferPlace::gpu,
                 MemoryCategory::gradients,
                 BufferLifetime::window)
            .held_by_optimizer = false;
      }
    } else {
      add_per_parameter(z.list,
                        BufferName::bit16_groups,
                        ".grad",
                        static_cast<int>(g),
                        members,
                        z.partition,
                        z.config.model_dtype,
                        MemoryCategory::gradients,
                        BufferLifetime::window,
                        z.parameters);
    }
  }
}

// grads_in_partition: one storage for all groups, the full numel of every parameter that this rank
// owns a part of, although it needs only the parts.
Elements owned_full_numel(const Zero12& z) {
  Elements sum;
  for (const OwnedSlice& slice : z.owned) {
    sum += z.partition.numels[static_cast<std::size_t>(slice.parameter)];
  }
  return sum;
}

// A slice and its place in its group's list of gradients.
struct PlacedSlice {
  OwnedSlice slice;
  int position = 0;
  bool used = true;
  bool muon = false;
};

std::vector<PlacedSlice> placed_slices(const Zero12& z) {
  std::vector<PlacedSlice> placed;
  for (const OwnedSlice& slice : z.owned) {
    const bool follows = !placed.empty() && placed.back().slice.group == slice.group;
    placed.push_back({.slice = slice,
                      .position = follows ? placed.back().position + 1 : 0,
                      .used = z.parameters[static_cast<std::size_t>(slice.parameter)].used,
                      .muon = z.parameters[static_cast<std::size_t>(slice.parameter)].muon.any()});
  }
  return placed;
}

// Where a window's sum is kept: up to 0.16 in the list of owned parts itself.
BufferName window_buffer(const Zero12& z) {
  return z.config.acts(ReleaseRule::sums_whole_gradients) ? BufferName::all_grad_tensors
                                                          : BufferName::averaged_gradients;
}

// The embedded runtime makes what a rank keeps of the gradients when a backward pass begins.
bool is_made_by_flush(const Zero12& z) { return !z.config.embedded; }

// One gradient that is a storage of its own: of the parameter's full size.
void add_owned_tensor(Zero12& z, const PlacedSlice& placed, DType dtype, bool waited) {
  const Elements numel = z.partition.numels[static_cast<std::size_t>(placed.slice.parameter)];
  if (z.config.stage == 2 && z.accumulates) {
    EngineBuffer& window = z.list.add(window_buffer(z),
                                      placed.slice.group,
                                      numel,
                                      dtype,
                                      BufferPlace::gpu,
                                      MemoryCategory::gradients,
                                      BufferLifetime::window);
    window.second_index = placed.position;
    window.made_by_flush = is_made_by_flush(z);
    if (!z.config.acts(ReleaseRule::sums_whole_gradients)) window.elements = placed.slice.numel;
  }
  EngineBuffer& kept =
      z.list.add(BufferName::averaged_gradients,
                 placed.slice.group,
                 numel,
                 dtype,
                 BufferPlace::gpu,
                 MemoryCategory::gradients,
                 waited ? BufferLifetime::after_boundary : BufferLifetime::boundary_to_step);
  kept.second_index = placed.position;
  kept.made_by_flush = is_made_by_flush(z) && !(z.config.stage == 2 && z.accumulates);
  kept.elements = placed.slice.numel;
}

// A storage beside the one that the optimizer's step reads.
void add_grads_in_partition(Zero12& z, BufferLifetime lifetime) {
  EngineBuffer& storage = z.list.add(BufferName::grads_in_partition,
                                     -1,
                                     owned_full_numel(z),
                                     z.config.model_dtype,
                                     BufferPlace::gpu,
                                     MemoryCategory::gradients,
                                     lifetime);
  storage.made_by_flush = is_made_by_flush(z);
  storage.held_by_optimizer = false;
}

void add_owned_storage(Zero12& z, const std::vector<PlacedSlice>& placed) {
  const auto used =
      std::find_if(placed.begin(), placed.end(), [](const PlacedSlice& item) { return item.used; });
  if (used == placed.end()) return;
  // The step reads updates in place of what Muon made them of: the storage stays for what is
  // Adam's.
  const auto read = std::find_if(placed.begin(), placed.end(), [](const PlacedSlice& item) {
    return item.used && !item.muon;
  });
  const bool stays = read != placed.end();
  const auto found = stays ? read : used;
  const Elements storage = owned_full_numel(z);
  const DType dtype = z.config.model_dtype;
  const OwnedSlice& first = found->slice;
  const bool hands_over = z.config.stage == 2 && z.accumulates;
  const bool made_by_flush = is_made_by_flush(z);
  if (hands_over) {
    EngineBuffer& window = z.list.add(window_buffer(z),
                                      first.group,
                                      storage,
                                      dtype,
                                      BufferPlace::gpu,
                                      MemoryCategory::gradients,
                                      BufferLifetime::window);
    window.second_index = found->position;
    window.made_by_flush = made_by_flush;
    if (!z.config.acts(ReleaseRule::sums_whole_gradients)) {
      window.elements = first.numel;
    } else {
      window.elements = z.partition.numels[static_cast<std::size_t>(first.parameter)];
    }
    // Later micro-steps reduce into a second storage, which is then added to the first.
    add_grads_in_partition(z, BufferLifetime::later_backward);
  }
  if (z.separate_accumulation) {
    // The copies land in a temporary cast; what the step reads is grad_accum itself.
    add_grads_in_partition(z, BufferLifetime::boundary_backward);
    return;
  }
  if (!stays) {
    if (!hands_over) add_grads_in_partition(z, BufferLifetime::boundary_backward);
    return;
  }
  EngineBuffer& kept =
      z.list.add(BufferName::averaged_gradients,
                 first.group,
                 storage,
                 dtype,
                 BufferPlace::gpu,
                 MemoryCategory::gradients,
                 hands_over ? BufferLifetime::after_boundary : BufferLifetime::boundary_to_step);
  kept.second_index = found->position;
  kept.made_by_flush = made_by_flush && !hands_over;
  kept.elements = first.numel;
}

// get_flat_partition: muon_update() of each whole parameter, of which the step reads the rank's
// part.
void add_update(Zero12& z, const PlacedSlice& placed) {
  const Elements numel = z.partition.numels[static_cast<std::size_t>(placed.slice.parameter)];
  EngineBuffer& update = z.list.add(BufferName::averaged_gradients,
                                    placed.slice.group,
                                    numel,
                                    z.config.gradient_accumulation_dtype,
                                    BufferPlace::gpu,
                                    MemoryCategory::gradients,
                                    BufferLifetime::updates_to_step);
  update.second_index = placed.position;
  update.elements = placed.slice.numel;
}

// contiguous_gradients false, or grad_accum: every owned gradient is its own whole storage. So are,
// always, the zeros that stand for gradients which never came (in the accumulation dtype).
void add_owned_gradients(Zero12& z) {
  const std::vector<PlacedSlice> placed = placed_slices(z);
  const bool one_storage = z.contiguous && !z.separate_accumulation;
  if (z.contiguous) add_owned_storage(z, placed);
  const DType own =
      z.separate_accumulation ? z.config.gradient_accumulation_dtype : z.config.model_dtype;
  for (const PlacedSlice& item : placed) {
    if (item.muon) add_update(z, item);
    if (item.muon || (item.used && one_storage)) continue;
    const bool waited = z.config.stage == 1 ? item.used : z.accumulates;
    add_owned_tensor(z, item, item.used ? own : z.config.gradient_accumulation_dtype, waited);
  }
}

// get_flat_partition: alignment padding is a tensor of zeros behind the last owned gradient; a
// group of which the rank owns nothing is one tensor of zeros.
void add_padding(Zero12& z) {
  std::vector<int> counts(z.partition.groups.size());
  for (const OwnedSlice& slice : z.owned) ++counts[static_cast<std::size_t>(slice.group)];
  for (std::size_t g = 0; g < counts.size(); ++g) {
    const int index = static_cast<int>(g);
    z.list
        .add(BufferName::averaged_gradients,
             index,
             partition_padding(z.partition, index, partition_rank(z.config)),
             z.config.gradient_accumulation_dtype,
             BufferPlace::gpu,
             MemoryCategory::gradients,
             BufferLifetime::boundary_to_step)
        .second_index = counts[g];
  }
}

}  // namespace

void add_zero12_buffers(BufferList& list, std::span<const EngineParameter> parameters) {
  const EngineConfig& config = list.config();
  Zero12 z{.list = list,
           .config = config,
           .parameters = parameters,
           .partition = flat_partition(config, parameters),
           .owned = {}};
  z.owned = owned_slices(z.partition, partition_rank(config));
  z.offload = offloads_optimizer(config);
  z.contiguous = config.contiguous_gradients || z.offload;
  z.separate_accumulation =
      config.stage == 1 && config.gradient_accumulation_dtype != config.model_dtype;
  z.accumulates = config.gradient_accumulation_steps > 1;
  add_module_parameters(list, parameters, /*frozen_only=*/true);
  add_group_states(z);
  add_offload_scratch(z);
  add_buckets(z);
  add_unbuffered_gradients(z);
  add_waiting_gradients(z);
  if (z.offload) return;
  add_owned_gradients(z);
  add_padding(z);
}

}  // namespace zeroplan::detail
