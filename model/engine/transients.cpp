#include "model/engine/transients.hpp"

#include <algorithm>

#include "model/engine/action_work.hpp"
#include "model/engine/buffers.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

Bytes optimizer_temporaries(const EngineConfig& config, Elements elements, DType dtype) {
  return elements * dtype * update_temporaries(config.optimizer, config.optimizer_implementation);
}

Elements total_numel(std::span<const EngineParameter> parameters, bool trainable_only) {
  Elements sum;
  for (const EngineParameter& parameter : parameters) {
    if (parameter.trainable || !trainable_only) sum += parameter.numel;
  }
  return sum;
}

Elements largest_numel(std::span<const EngineParameter> parameters) {
  Elements largest;
  for (const EngineParameter& parameter : parameters) {
    if (parameter.trainable) largest = std::max(largest, parameter.numel);
  }
  return largest;
}

Bytes initialised(const std::vector<EngineBuffer>& buffers, BufferPlace place) {
  return bytes_at(buffers, place, EngineMoment::initialised, 1);
}

// What a wrapper does with each group while it flattens the model.
struct Flattening {
  int copies = 1;  // flat buffer; 2 with a clone of each tensor beside it, 0 made on the host
  bool whole_master = false;  // master of the whole group, not of a partition
  bool master_on_gpu = true;
  bool keeps_gradients = false;  // BF16_Optimizer: the group's gradient buffer
};

// Group by group: the originals of groups not yet flattened, the copies of those that are, their
// masters, and the new flat buffer.
Bytes flattening_peak(const EngineConfig& config,
                      const FlatPartition& partition,
                      const Flattening& how,
                      Bytes module) {
  Bytes peak = module;
  Bytes held = module;
  for (const FlatGroup& group : partition.groups) {
    const Elements owned = how.whole_master ? group.aligned : group.partition;
    peak = std::max(peak, held + group.aligned * config.model_dtype * how.copies);
    // The originals go as their storage is re-pointed; padding is what the group grows by.
    held += (group.aligned - group.numel) * config.model_dtype;
    // clone() in the model dtype beside what it is cast to.
    const Bytes master = how.master_on_gpu ? owned * config.master_dtype : Bytes::zero();
    peak = std::max(peak, held + owned * config.model_dtype + master);
    held += master;
    if (how.keeps_gradients) held += group.aligned * config.gradient_accumulation_dtype;
  }
  return std::max(peak, held);
}

bool flattens_there(const EngineConfig& config,
                    const FlatPartition& partition,
                    Bytes module,
                    Bytes gpu_room) {
  if (!config.acts(ReleaseRule::flattens_on_gpu)) return false;
  Bytes largest;
  for (const FlatGroup& group : partition.groups) {
    largest = std::max(largest, group.aligned * config.model_dtype);
  }
  return gpu_room.is_infinite() || module + largest <= gpu_room;
}

HostAndGpu zero12_peak(const EngineConfig& config,
                       std::span<const EngineParameter> parameters,
                       const std::vector<EngineBuffer>& buffers,
                       Bytes gpu_room) {
  HostAndGpu peak;
  const FlatPartition partition = flat_partition(config, parameters);
  const bool offload = config.offload_optimizer.device != OffloadDevice::none;
  const Bytes module = total_numel(parameters, false) * config.model_dtype;
  const bool on_gpu = flattens_there(config, partition, module, gpu_room);
  // Flattened on the host, the flat buffer takes the place of what it was made of; clone() of the
  // own partition is on the GPU either way, except where an old release moves it away first.
  const bool clones = on_gpu || !offload || config.acts(ReleaseRule::flattens_on_gpu);
  peak.gpu = module;
  if (clones) {
    peak.gpu = flattening_peak(
        config, partition, {.copies = on_gpu ? 1 : 0, .master_on_gpu = !offload}, module);
  }
  // initialize_optimizer_states: a zero gradient of each group, freed after the last.
  Bytes zeros;
  Bytes largest_master;
  Bytes largest_group;
  for (const FlatGroup& group : partition.groups) {
    zeros += group.partition * config.master_dtype;
    largest_master = std::max(largest_master, group.partition * config.master_dtype);
    largest_group = std::max(largest_group, group.aligned * config.model_dtype);
  }
  peak.gpu = std::max(peak.gpu,
                      initialised(buffers, BufferPlace::gpu) + (offload ? Bytes::zero() : zeros));
  peak.host_pinned = initialised(buffers, BufferPlace::host_pinned);
  peak.host_pageable = initialised(buffers, BufferPlace::host_pageable);
  // A pinned copy is made from a pageable one.
  if (offload && config.offload_optimizer.pin_memory) peak.host_pageable += largest_master;
  // Tensors moved to the host, and their flat copy.
  if (!on_gpu) peak.host_pageable += largest_group * 2;
  return peak;
}

HostAndGpu zero3_peak(const EngineConfig& config,
                      std::span<const EngineParameter> parameters,
                      const std::vector<EngineBuffer>& buffers) {
  HostAndGpu peak;
  const int ranks = partition_ranks(config);
  const std::vector<SubGroup> groups = sub_groups(config, parameters);
  Elements largest_gpu;
  Elements largest_host;
  Elements largest_any;
  Elements partitioned;
  for (const SubGroup& group : groups) {
    (group.on_host ? largest_host : largest_gpu) =
        std::max(group.on_host ? largest_host : largest_gpu, group.numel);
    largest_any = std::max(largest_any, group.numel);
    partitioned += group.numel;
  }
  const bool offload = config.offload_optimizer.device != OffloadDevice::none;
  const Bytes resident = initialised(buffers, BufferPlace::gpu);
  // Without zero.Init the whole model lies on the GPU and is partitioned parameter by parameter.
  const Elements largest = largest_numel(parameters);
  Bytes module;
  if (!config.stage3.zero_init) {
    module =
        (total_numel(parameters, false) + partitioned_numel(largest, ranks)) * config.model_dtype;
  }
  // Masters are cast, then cloned; the zero gradient of the largest sub-group is freed after init.
  // Bucket and gradient buffers are made after that (stage3.py _setup_for_real_optimizer).
  Bytes with_masters = resident;
  for (const EngineBuffer& buffer : buffers) {
    const bool later = buffer.name == BufferName::ipg_bucket ||
                       buffer.name == BufferName::grad_partitions_flat_buffer;
    if (later && buffer.place == BufferPlace::gpu) with_masters -= buffer.allocated;
  }
  Bytes states = with_masters + largest_gpu * config.master_dtype;
  if (!offload) states = std::max(states, with_masters + largest_any * config.master_dtype);
  // Every trainable parameter is gathered once, alone, when its hook is made; up to 0.16 into a
  // buffer that is then copied (partition_parameters.py _allgather_params).
  Bytes gather = resident + partitioned_numel(largest, ranks) * ranks * config.model_dtype;
  if (!config.acts(ReleaseRule::gathers_without_copy)) gather += largest * config.model_dtype;
  peak.gpu = std::max({module, states, gather});
  peak.host_pinned = initialised(buffers, BufferPlace::host_pinned);
  const Bytes pageable = initialised(buffers, BufferPlace::host_pageable);
  // zero/utils.py defragment: partitions pass through one pageable buffer.
  const Bytes defragment = config.offload_parameter.device == OffloadDevice::none
                               ? partitioned * config.model_dtype
                               : Bytes::zero();
  Bytes host_states = pageable + largest_host * config.master_dtype;
  if (offload) host_states = std::max(host_states, pageable + largest_any * config.master_dtype);
  peak.host_pageable = std::max(defragment, host_states);
  return peak;
}

}  // namespace

HostAndGpu load_peak(const EngineConfig& config,
                     std::span<const EngineParameter> parameters,
                     Elements largest_module) {
  HostAndGpu peak;
  if (config.embedded) return peak;  // weights are made where they stay
  if (config.stage == 3 && config.stage3.zero_init) {
    Elements partitioned;
    for (const EngineParameter& parameter : parameters) {
      partitioned += partitioned_numel(parameter.numel, partition_ranks(config));
    }
    peak.gpu = largest_module * config.model_dtype;
    if (config.offload_parameter.device == OffloadDevice::none) {
      peak.gpu += partitioned * config.model_dtype;
    } else if (config.offload_parameter.device == OffloadDevice::cpu) {
      for (const EngineParameter& parameter : parameters) {
        const Bytes bytes =
            partitioned_numel(parameter.numel, partition_ranks(config)) * config.model_dtype;
        if (config.offload_parameter.pin_memory) {
          peak.host_pinned += pinned_allocation(bytes, config.pin_backend);
        } else {
          peak.host_pageable += bytes;
        }
      }
    }
    return peak;
  }
  peak.gpu = total_numel(parameters, false) * config.model_dtype;
  return peak;
}

HostAndGpu initialization_peak(const EngineConfig& config,
                               std::span<const EngineParameter> parameters,
                               Bytes gpu_room) {
  const std::vector<EngineBuffer> buffers = engine_buffers(config, parameters);
  const OptimizerWrapper wrapper = optimizer_wrapper(config);
  const Bytes resident = initialised(buffers, BufferPlace::gpu);
  const Bytes module = total_numel(parameters, false) * config.model_dtype;
  HostAndGpu peak;
  if (config.embedded) {
    peak.gpu = resident;
    peak.host_pinned = initialised(buffers, BufferPlace::host_pinned);
    peak.host_pageable = initialised(buffers, BufferPlace::host_pageable);
    return peak;
  }
  switch (wrapper) {
    case OptimizerWrapper::plain:
      peak.gpu = resident;
      break;
    case OptimizerWrapper::fp16_fused:
    case OptimizerWrapper::fp16_unfused: {
      // A real step on zero gradients: one for each master (the unfused wrapper also one for each
      // weight), and the optimizer's temporaries.
      const Elements trainable = total_numel(parameters, true);
      const bool fused = wrapper == OptimizerWrapper::fp16_fused;
      peak.gpu = resident + trainable * config.master_dtype +
                 optimizer_temporaries(
                     config, fused ? trainable : largest_numel(parameters), config.master_dtype);
      if (fused) {
        peak.gpu = std::max(peak.gpu,
                            flattening_peak(config,
                                            flat_partition(config, parameters),
                                            {.copies = 2, .whole_master = true},
                                            module));
      } else {
        peak.gpu += trainable * config.model_dtype;
      }
      break;
    }
    case OptimizerWrapper::bf16_optimizer:
      peak.gpu = flattening_peak(
          config, flat_partition(config, parameters), {.keeps_gradients = true}, module);
      break;
    case OptimizerWrapper::zero12:
      return zero12_peak(config, parameters, buffers, gpu_room);
    case OptimizerWrapper::zero3:
    case OptimizerWrapper::mics:
      return zero3_peak(config, parameters, buffers);
  }
  return peak;
}

Bytes reduction_peak(const EngineConfig& config, const EngineActions& actions) {
  const bool zero3 = config.stage == 3;
  Bytes copies;
  Bytes peak;
  for (const EngineAction& action : actions.actions) {
    switch (action.kind) {
      case ActionKind::flush:
        copies = Bytes::zero();
        break;
      case ActionKind::flatten:
      case ActionKind::concatenate:
      case ActionKind::cast:
        copies += action.elements * action.dtype;
        break;
      case ActionKind::collective:
        // Stages 0 to 2 free a copy before they make the next; stage 3 keeps all of a bucket. The
        // copy itself was counted when it was made.
        if (!zero3) copies = Bytes::zero();
        break;
      default:
        break;
    }
    peak = std::max(peak, copies + action_temporaries(config, action));
  }
  return peak;
}

Bytes orthogonalization_peak(const EngineConfig& config, const EngineActions& actions) {
  Bytes updates;
  Bytes peak;
  for (const EngineAction& action : actions.actions) {
    if (action.kind != ActionKind::orthogonalize) continue;
    peak = std::max(
        peak, updates + newton_schulz_peak(action.matrices, config.newton_schulz, action.dtype));
    updates += action.elements * action.dtype;
  }
  return peak;
}

namespace {

// Muon's updates of a group go once the group has a copy of its own (averaged_gradients[i] = None).
Bytes updates_of(const EngineConfig& config,
                 std::span<const EngineParameter> parameters,
                 int group) {
  Bytes sum;
  for (const EngineBuffer& buffer : engine_buffers(config, parameters)) {
    if (buffer.lifetime == BufferLifetime::updates_to_step && buffer.index == group) {
      sum += buffer.allocated;
    }
  }
  return sum;
}

// Owned gradients of stages 1 and 2 go once the last group has a copy of its own (step():
// averaged_gradients[i] = None; the groups share one storage).
Bytes owned_gradients(const EngineConfig& config, std::span<const EngineParameter> parameters) {
  if (optimizer_wrapper(config) != OptimizerWrapper::zero12) return Bytes::zero();
  Bytes sum;
  for (const EngineBuffer& buffer : engine_buffers(config, parameters)) {
    const bool there = exists(buffer.lifetime, EngineMoment::before_step, 2);
    if (there && buffer.name == BufferName::averaged_gradients &&
        buffer.place == BufferPlace::gpu) {
      sum += buffer.allocated;
    }
  }
  return sum;
}

// An optimizer that goes from tensor to tensor has the temporaries of one at a time.
EngineAction one_tensor(const EngineConfig& config,
                        std::span<const EngineParameter> parameters,
                        EngineAction step) {
  const OptimizerWrapper wrapper = optimizer_wrapper(config);
  const bool per_parameter =
      wrapper == OptimizerWrapper::plain || wrapper == OptimizerWrapper::fp16_unfused;
  if (per_parameter && config.optimizer_implementation != OptimizerImplementation::foreach) {
    step.elements = std::min(step.elements, largest_numel(parameters));
  }
  return step;
}

}  // namespace

HostAndGpu step_temporaries(const EngineConfig& config,
                            std::span<const EngineParameter> parameters) {
  EngineActions actions;
  optimizer_step(config, parameters, /*overflowed=*/false, actions);
  const bool by_group = !prepares_all_groups(config);
  HostAndGpu peak;
  Bytes flat;      // of the group at hand
  Bytes gradient;  // its fp32 gradient
  Bytes casts;     // gradients one by one, until a flat copy of them is made
  Bytes freed;     // of what lies there before the step
  const Bytes owned = owned_gradients(config, parameters);
  int last_group = -1;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == ActionKind::optimizer_step) last_group = action.group;
  }
  const auto gpu = [&](Bytes more) {
    const Bytes held = flat + gradient + casts + more;
    if (held > freed) peak.gpu = std::max(peak.gpu, held - freed);
  };
  for (const EngineAction& action : actions.actions) {
    const Bytes bytes = action.elements * action.dtype;
    switch (action.kind) {
      case ActionKind::overflow_scan:
        if (action.on_host) {  // stage 3, where the gradient buffer lies
          EngineAction scan = action;
          scan.on_host = false;
          peak.host_pageable = std::max(peak.host_pageable, action_temporaries(config, scan));
        }
        gpu(action_temporaries(config, action));
        break;
      case ActionKind::norm:
        gpu(action_temporaries(config, action));
        break;
      case ActionKind::optimizer_step:
        if (action.group == last_group && flat + gradient + casts > Bytes::zero()) freed = owned;
        if (action.matrices.any()) freed += updates_of(config, parameters, action.group);
        gpu(action_temporaries(config, one_tensor(config, parameters, action)));
        break;
      case ActionKind::flatten:
        if (!by_group) gradient += bytes;
        if (by_group) flat = bytes;
        gpu(Bytes::zero());
        casts -= std::min(casts, bytes);
        break;
      case ActionKind::cast:
        (action.parameter >= 0 ? casts : gradient) += bytes;
        gpu(Bytes::zero());
        flat = Bytes::zero();
        break;
      case ActionKind::copy_to_device:
        if (action.host_waits && config.stage == 3) {
          peak.host_pageable = std::max(peak.host_pageable, bytes);
        }
        // Up to 0.16 stages 1 and 2 move the fp32 master.
        if (action.host_waits && config.stage < 3) gpu(bytes);
        break;
      case ActionKind::update_weights:
        flat = Bytes::zero();
        if (by_group && optimizer_wrapper(config) != OptimizerWrapper::bf16_optimizer) {
          gradient = Bytes::zero();
        }
        break;
      default:
        break;
    }
  }
  return peak;
}

HostAndGpu save_peak(const EngineConfig& config,
                     std::span<const EngineParameter> parameters,
                     Elements largest_module) {
  HostAndGpu peak;
  if (config.stage == 3) {
    if (!config.stage3.gather_16bit_weights_on_save) return peak;
    peak.gpu = largest_module * config.model_dtype;
  }
  if (config.rank == 0) {
    peak.host_pageable = total_numel(parameters, false) * config.model_dtype;
  }
  return peak;
}

bool flattens_on_gpu(const EngineConfig& config,
                     std::span<const EngineParameter> parameters,
                     Bytes gpu_room) {
  if (optimizer_wrapper(config) != OptimizerWrapper::zero12) return false;
  const Bytes module = total_numel(parameters, false) * config.model_dtype;
  return flattens_there(config, flat_partition(config, parameters), module, gpu_room);
}

}  // namespace zeroplan
