#include "simulator/engines/deepspeed_initialisation.hpp"

#include <algorithm>
#include <string_view>

#include "model/engine/partition.hpp"
#include "model/engine/transients.hpp"
#include "model/releases.hpp"
#include "model/step/outside_passes.hpp"

namespace zeroplan::simulator {
namespace {

constexpr MemoryCategory kParameters = MemoryCategory::parameters;
constexpr MemoryCategory kTemporaries = MemoryCategory::temporaries;

bool is_made_at_start(const EngineBuffer& buffer) {
  return buffer.place == BufferPlace::gpu && buffer.lifetime == BufferLifetime::resident;
}

// Of weights; what the optimizer makes beside has a suffix.
bool is_master(const EngineBuffer& buffer) {
  return buffer.category == MemoryCategory::optimizer_states && buffer.suffix.empty();
}

}  // namespace

DeepSpeedInitialisation::DeepSpeedInitialisation(const Plan& plan,
                                                 const ModelGraph& graph,
                                                 const EngineConfig& config,
                                                 ProgramWriter& writer,
                                                 BufferSlots& buffers,
                                                 ModuleFetches* fetches)
    : plan_(plan),
      model_graph_(graph),
      config_(config),
      writer_(writer),
      slots_(buffers),
      buffers_(buffers.buffers()),
      fetches_(fetches) {}

SlotIndex DeepSpeedInitialisation::hold(Bytes bytes, Purpose purpose) {
  const bool copies = purpose == Purpose::partitioning;
  const bool outputs = purpose == Purpose::kept_outputs;
  const SlotIndex slot = writer_.new_slot();
  writer_.allocate(slot,
                   bytes,
                   copies    ? kTemporaries
                   : outputs ? MemoryCategory::logits
                             : kParameters,
                   kComputeStream,
                   purpose);
  return slot;
}

void DeepSpeedInitialisation::pass_through(Bytes bytes, Purpose purpose) {
  writer_.release(hold(bytes, purpose));
}

void DeepSpeedInitialisation::release_all(const std::vector<SlotIndex>& slots) {
  for (const SlotIndex slot : slots) writer_.release(slot);
}

// By parameter: the buffer of this name that is made for it at the start; -1: none.
std::vector<int> DeepSpeedInitialisation::made_by_parameter(BufferName name) const {
  std::vector<int> made(plan_.engine_parameters.size(), -1);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].name != name || !is_made_at_start(buffers_[i])) continue;
    made[static_cast<std::size_t>(buffers_[i].index)] = static_cast<int>(i);
  }
  return made;
}

// The module's weights come tensor by tensor in their order (nn.Module.to). What is frozen stays
// where it is; of what is trained a slot for each, by group.
std::vector<std::vector<SlotIndex>> DeepSpeedInitialisation::load_apart() {
  std::vector<std::vector<SlotIndex>> apart;
  const std::vector<int> frozen = made_by_parameter(BufferName::module_parameters);
  const std::vector<RegisteredBuffer>& registered = model_graph_.registered;
  auto buffer = registered.begin();
  Bytes elsewhere = model_graph_.buffers;
  for (std::size_t p = 0; p < plan_.engine_parameters.size(); ++p) {
    const EngineParameter& parameter = plan_.engine_parameters[p];
    if (parameter.trainable) {
      const auto group = static_cast<std::size_t>(parameter.group);
      if (apart.size() <= group) apart.resize(group + 1);
      apart[group].push_back(hold(parameter.numel * config_.model_dtype, Purpose::building));
    } else if (frozen[p] >= 0) {
      slots_.allocate(static_cast<std::size_t>(frozen[p]));
    }
    for (; buffer != registered.end() && buffer->behind == static_cast<int>(p); ++buffer) {
      hold(buffer->bytes, Purpose::registered_buffers);
      elsewhere -= buffer->bytes;
    }
  }
  hold_kept(elsewhere);
  return apart;
}

// Registered buffers, and what a pipeline's last stage keeps of earlier micro-batches.
void DeepSpeedInitialisation::hold_kept(Bytes registered) {
  hold(registered, Purpose::registered_buffers);
  if (model_graph_.kept_outputs > Bytes::zero()) {
    hold(model_graph_.kept_outputs, Purpose::kept_outputs);
  }
}

// The flat weights of a group; -1: all that are left.
void DeepSpeedInitialisation::make_weights(int group) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (slots_.is_open(i, group) && buffers_[i].category == kParameters) slots_.allocate(i);
  }
}

// Its masters, each made of a clone of its part; in stage 3 since 0.18 a clone of what its part is
// cast to (stage3.py _create_fp32_partitions). The clone is the master where neither casts.
void DeepSpeedInitialisation::make_masters(int group) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!slots_.is_open(i, group) || !is_master(buffers_[i])) continue;
    if (config_.model_dtype == config_.master_dtype) {
      slots_.allocate(i);
      continue;
    }
    const bool clones_cast = config_.stage == 3 && config_.acts(ReleaseRule::clones_cast_master);
    const DType made_of = clones_cast ? config_.master_dtype : config_.model_dtype;
    const SlotIndex clone = hold(buffers_[i].elements * made_of, Purpose::partitioning);
    slots_.allocate(i);
    writer_.release(clone);
  }
}

// stage_1_and_2.py __init__: the trained weights are flattened group by group, each time after the
// GPU's cache is emptied: beside the module's tensors, or up to 0.17, and where the GPU has no
// room, on the host after they have gone. Then a zero gradient of each master comes and goes
// (initialize_optimizer_states).
void DeepSpeedInitialisation::write_flattening(bool on_gpu) {
  writer_.mark(Phase::load);
  const std::vector<std::vector<SlotIndex>> apart = load_apart();
  writer_.mark(Phase::init);
  const bool offload = config_.offload_optimizer.device != OffloadDevice::none;
  const FlatPartition partition = flat_partition(config_, plan_.engine_parameters);
  for (std::size_t g = 0; g < apart.size(); ++g) {
    const int group = static_cast<int>(g);
    if (!on_gpu) release_all(apart[g]);
    writer_.empty_cache();
    make_weights(group);
    if (on_gpu) release_all(apart[g]);
    // The clone of a part whose master is on the host.
    if (offload && on_gpu) {
      pass_through(partition.groups[g].partition * config_.model_dtype, Purpose::partitioning);
    }
    make_masters(group);
  }
  make_weights(-1);
  make_masters(-1);
  slots_.allocate(BufferLifetime::resident);
  if (offload) return;
  std::vector<SlotIndex> zeros;
  for (const FlatGroup& group : partition.groups) {
    zeros.push_back(hold(group.partition * config_.master_dtype, Purpose::partitioning));
  }
  release_all(zeros);
}

// fused_optimizer.py __init__: clones of a group's weights are flattened beside the module, each
// master is cast from a clone; a first step with zero gradients makes the optimizer's states.
void DeepSpeedInitialisation::write_fused_flattening() {
  writer_.mark(Phase::load);
  const std::vector<std::vector<SlotIndex>> apart = load_apart();
  writer_.mark(Phase::init);
  const FlatPartition partition = flat_partition(config_, plan_.engine_parameters);
  for (std::size_t g = 0; g < apart.size(); ++g) {
    std::vector<SlotIndex> clones;
    for (const int p : partition.groups[g].declared) {
      const Elements numel = plan_.engine_parameters[static_cast<std::size_t>(p)].numel;
      clones.push_back(hold(numel * config_.model_dtype, Purpose::partitioning));
    }
    make_weights(static_cast<int>(g));
    release_all(clones);
    release_all(apart[g]);
    make_masters(static_cast<int>(g));
  }
  std::vector<SlotIndex> zeros;
  for (const FlatGroup& group : partition.groups) {
    zeros.push_back(hold(group.numel * DType::fp32, Purpose::partitioning));
  }
  slots_.allocate(BufferLifetime::resident);
  release_all(zeros);
}

// bf16_optimizer.py _setup_for_real_optimizer: a group's weights are flattened beside the module's
// tensors, which then go; its master is cast from a clone of its part.
void DeepSpeedInitialisation::write_bf16_flattening() {
  writer_.mark(Phase::load);
  const std::vector<std::vector<SlotIndex>> apart = load_apart();
  writer_.mark(Phase::init);
  for (std::size_t g = 0; g < apart.size(); ++g) {
    const int group = static_cast<int>(g);
    make_weights(group);
    release_all(apart[g]);
    make_masters(group);
  }
  slots_.allocate(BufferLifetime::resident);
}

// stage3.py __init__: the partitions are copied into one buffer while the cache is empty, masters
// are cast from clones, a zero gradient of the largest comes and goes
// (initialize_optimizer_states), then bucket and gradients are made.
void DeepSpeedInitialisation::write_partitioned() {
  make_weights(-1);
  make_masters(-1);
  Bytes largest;
  for (const EngineBuffer& buffer : buffers_) {
    if (is_master(buffer) && is_made_at_start(buffer)) largest = std::max(largest, buffer.bytes);
  }
  pass_through(largest, Purpose::partitioning);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const bool bucket = buffers_[i].category == MemoryCategory::communication_buffers;
    if (bucket && slots_.is_open(i, -1)) slots_.allocate(i);
  }
}

// stage3.py create_reduce_and_remove_grad_hooks gathers one parameter after the other; up to 0.16
// what was gathered is copied into a tensor of the parameter's shape (_allgather_params).
void DeepSpeedInitialisation::gather_for_hooks() {
  const int ranks = partition_ranks(config_);
  for (const EngineParameter& parameter : plan_.engine_parameters) {
    if (!parameter.trainable) continue;
    const SlotIndex gathered =
        hold(partitioned_numel(parameter.numel, ranks) * ranks * config_.model_dtype,
             Purpose::partitioning);
    if (!config_.acts(ReleaseRule::gathers_without_copy)) {
      pass_through(parameter.numel * config_.model_dtype, Purpose::partitioning);
    }
    writer_.release(gathered);
  }
}

void DeepSpeedInitialisation::write() {
  const OptimizerWrapper wrapper = optimizer_wrapper(config_);
  const bool real = !config_.embedded;  // DeepSpeed's own code
  if (real && wrapper == OptimizerWrapper::zero12) {
    write_flattening(
        flattens_on_gpu(config_, plan_.engine_parameters, plan_.cluster.gpu.memory.value));
  } else if (real && wrapper == OptimizerWrapper::fp16_fused) {
    write_fused_flattening();
  } else if (real && wrapper == OptimizerWrapper::bf16_optimizer) {
    write_bf16_flattening();
  } else {
    write_other(real && wrapper == OptimizerWrapper::zero3);
  }
}

// Of weights in four bits, and of those kept on the host, other code is responsible.
bool DeepSpeedInitialisation::builds_partitioned() const {
  const auto& parameters = plan_.engine_parameters;
  return config_.stage3.zero_init && config_.offload_parameter.device == OffloadDevice::none &&
         std::none_of(parameters.begin(), parameters.end(), [](const EngineParameter& parameter) {
           return parameter.quantized;
         });
}

// zero.Init (partition_parameters.py _post_init_method, _partition_param): a module's parameters
// are made whole, then each is replaced by its part. A tied head's own weight goes when it is tied.
// Then every parameter is gathered once to be initialised or loaded (transformers'
// integrations/deepspeed.py). Frozen parts stay where they were made; of what is trained the slots.
std::vector<SlotIndex> DeepSpeedInitialisation::build_partitioned() {
  const int ranks = partition_ranks(config_);
  const auto& parameters = plan_.engine_parameters;
  const std::vector<int> frozen = made_by_parameter(BufferName::frozen_ds_tensor);
  const auto whole = [&](std::size_t p) { return parameters[p].numel * config_.model_dtype; };
  const auto part = [&](std::size_t p) {
    return partitioned_numel(parameters[p].numel, ranks) * config_.model_dtype;
  };
  const std::vector<Parameter>& names = plan_.model->parameters;
  const auto module_of = [&](std::size_t p) {
    return std::string_view(names[p].name).substr(0, names[p].name.rfind('.'));
  };
  std::vector<SlotIndex> trained;
  for (std::size_t first = 0; first < parameters.size();) {
    std::size_t end = first;
    std::vector<SlotIndex> made;
    for (; end < parameters.size() && module_of(end) == module_of(first); ++end) {
      made.push_back(hold(whole(end), Purpose::building));
    }
    for (std::size_t p = first; p < end; ++p) {
      if (frozen[p] >= 0) {
        slots_.allocate(static_cast<std::size_t>(frozen[p]));
      } else {
        trained.push_back(hold(part(p), Purpose::building));
      }
      writer_.release(made[p - first]);
    }
    first = end;
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    for (int again = 1; again < parameters[p].tensors_built; ++again) {
      const SlotIndex made = hold(whole(p), Purpose::building);
      const SlotIndex own = hold(part(p), Purpose::building);
      writer_.release(made);
      writer_.release(own);
    }
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) pass_through(whole(p), Purpose::building);
  return trained;
}

void DeepSpeedInitialisation::write_other(bool zero3) {
  const OutsidePasses outside =
      outside_passes(plan_, config_, buffers_, plan_.cluster.gpu.memory.value);
  writer_.mark(Phase::load);
  std::vector<SlotIndex> parts;
  if (zero3 && builds_partitioned()) {
    parts = build_partitioned();
  } else {
    // Buffers come with the weights, scales of four bits among them.
    const Bytes weights = outside.load_peak.gpu;
    if (weights > Bytes::zero()) pass_through(weights + model_graph_.buffers, Purpose::building);
  }
  writer_.mark(Phase::init);
  release_all(parts);
  // Stages 1 to 3 call it while they flatten (stage_1_and_2.py __init__, zero/utils.py defragment).
  if (config_.stage > 0) writer_.empty_cache();
  hold_kept(model_graph_.buffers);
  if (zero3) write_partitioned();
  slots_.allocate(BufferLifetime::resident);
  if (fetches_) fetches_->make_secondary_partitions(buffers_);
  if (zero3) {
    gather_for_hooks();
    return;
  }
  Bytes resident = model_graph_.buffers + model_graph_.kept_outputs;
  for (const EngineBuffer& buffer : buffers_) {
    if (is_made_at_start(buffer)) resident += buffer.bytes;
  }
  pass_through(std::max(Bytes::zero(), outside.init_peak.gpu - resident), Purpose::partitioning);
}

}  // namespace zeroplan::simulator
