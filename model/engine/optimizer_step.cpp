#include "model/engine/optimizer_step.hpp"

#include "model/engine/optimizer_states.hpp"
#include "model/engine/partition.hpp"
#include "model/engine/swapping.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

// Writes one step; the fields every method needs.
class StepWriter {
 public:
  StepWriter(const EngineConfig& config,
             std::span<const EngineParameter> parameters,
             EngineActions& out)
      : config_(config), parameters_(parameters), out_(out) {}

  void plain();
  void dense(OptimizerWrapper wrapper);
  void bf16_optimizer();
  void zero12(bool overflowed);
  void zero3(bool overflowed);

 private:
  EngineAction& add(ActionKind kind) {
    EngineAction action;
    action.kind = kind;
    action.in_step = true;
    out_.actions.push_back(action);
    return out_.actions.back();
  }
  EngineAction& add(ActionKind kind, int group, Elements elements, DType dtype) {
    EngineAction& action = add(kind);
    action.group = group;
    action.elements = elements;
    action.dtype = dtype;
    return action;
  }
  EngineAction& collective(CollectiveKind kind, Elements elements, DType dtype) {
    EngineAction& action = add(ActionKind::collective);
    action.elements = elements;
    action.dtype = dtype;
    action.collective.kind = kind;
    action.collective.ranks = partition_ranks(config_);
    return action;
  }
  // The embedded runtime multiplies inside its update (runtime/engine/rank_step.cpp).
  void scale(int group, Elements elements, DType dtype, bool on_host = false) {
    if (!config_.embedded) add(ActionKind::scale, group, elements, dtype).on_host = on_host;
  }
  void agree_on_overflow() {
    EngineAction& action = collective(CollectiveKind::all_reduce, Elements::of(1), DType::uint8);
    action.collective.operation = ReduceOperation::maximum;
    action.host_waits = true;  // overflow_gpu[0].item()
  }
  void gather_groups(const FlatPartition& partition);
  void update_zero12_group(const FlatPartition& partition,
                           std::span<const OwnedSlice> owned,
                           int group);
  void update_zero12_on_host(const FlatGroup& group, int index);
  // What of a sub-group goes to NVMe.
  struct Swapped {
    Elements read, written;  // states
    Elements copied;         // pieces of the gradient that waited on the GPU
    int tensors = 0;         // of those
    bool waits = false;      // for what is written
    Elements weights;        // written
  };
  void update_sub_group(const SubGroup& group, int index, const Swapped& swapped);
  std::vector<Swapped> swapped_groups(std::span<const SubGroup> groups) const;
  void gather_persistent();
  bool offloads() const { return config_.offload_optimizer.device != OffloadDevice::none; }
  Elements part(int parameter) const {
    return partitioned_numel(parameters_[static_cast<std::size_t>(parameter)].numel,
                             partition_ranks(config_));
  }

  const EngineConfig& config_;
  std::span<const EngineParameter> parameters_;
  EngineActions& out_;
};

DType wider(DType a, DType b) { return width(a) >= width(b) ? a : b; }

// ---- stage 0 ----

// engine.py clip_fp32_gradients: the norm is averaged over the ranks.
void StepWriter::plain() {
  Elements total;
  for (const EngineParameter& parameter : parameters_) {
    if (parameter.trainable) total += parameter.numel;
  }
  if (config_.gradient_clipping > 0.0) {
    add(ActionKind::norm, -1, total, config_.model_dtype);
    collective(CollectiveKind::all_reduce, Elements::of(1), DType::fp32);
    scale(-1, total, config_.model_dtype);
  }
  add(ActionKind::optimizer_step, 0, total, config_.model_dtype);
}

void StepWriter::dense(OptimizerWrapper wrapper) {
  const FlatPartition partition = flat_partition(config_, parameters_);
  const bool fused = wrapper == OptimizerWrapper::fp16_fused;
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const FlatGroup& group = partition.groups[g];
    const int index = static_cast<int>(g);
    // One parameter after the other, in bf16 too (fused_optimizer.py step, runtime/utils.py
    // CheckOverflow.has_overflow_serial).
    for (const int parameter : group.declared) {
      EngineAction& scan = add(ActionKind::overflow_scan,
                               index,
                               partition.numels[static_cast<std::size_t>(parameter)],
                               config_.model_dtype);
      scan.parameter = parameter;
      scan.host_waits = true;
    }
    // FP16_Optimizer casts each gradient and then flattens the casts into one more buffer.
    for (const int parameter : group.declared) {
      add(ActionKind::cast,
          index,
          partition.numels[static_cast<std::size_t>(parameter)],
          config_.master_dtype)
          .parameter = parameter;
    }
    if (fused && group.declared.size() > 1) {
      add(ActionKind::flatten, index, group.numel, config_.master_dtype).pieces =
          static_cast<int>(group.declared.size());
    }
    add(ActionKind::norm, index, group.numel, config_.master_dtype);
    scale(index, group.numel, config_.master_dtype);
  }
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const FlatGroup& group = partition.groups[g];
    add(ActionKind::optimizer_step, static_cast<int>(g), group.numel, config_.master_dtype);
    add(ActionKind::update_weights, static_cast<int>(g), group.numel, config_.model_dtype);
  }
}

void StepWriter::bf16_optimizer() {
  const FlatPartition partition = flat_partition(config_, parameters_);
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const FlatGroup& group = partition.groups[g];
    const int index = static_cast<int>(g);
    // Norm and clipping run over the gradients of the whole model, on every rank.
    add(ActionKind::norm, index, group.numel, config_.gradient_accumulation_dtype);
    if (config_.gradient_clipping > 0.0) {
      scale(index, group.numel, config_.gradient_accumulation_dtype);
    }
    if (config_.gradient_accumulation_dtype != config_.master_dtype) {
      add(ActionKind::cast, index, group.partition, config_.master_dtype);
    }
  }
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const FlatGroup& group = partition.groups[g];
    add(ActionKind::optimizer_step, static_cast<int>(g), group.partition, config_.master_dtype);
    add(ActionKind::update_weights, static_cast<int>(g), group.partition, config_.model_dtype);
  }
  gather_groups(partition);
}

// ---- stages 1 and 2 ----

// One call per group, in place, on the compute stream; allgather_bucket_size is not read.
void StepWriter::gather_groups(const FlatPartition& partition) {
  if (partition.ranks == 1) return;
  for (const FlatGroup& group : partition.groups) {
    collective(CollectiveKind::all_gather, group.aligned, config_.model_dtype).collective.in_place =
        true;
  }
}

void StepWriter::update_zero12_on_host(const FlatGroup& group, int index) {
  scale(index, group.partition, config_.master_dtype, /*on_host=*/true);
  add(ActionKind::optimizer_step, index, group.partition, config_.master_dtype).on_host = true;
  const bool pinned = config_.offload_optimizer.pin_memory;
  if (config_.acts(ReleaseRule::casts_weights_on_host)) {
    add(ActionKind::update_weights, index, group.partition, config_.model_dtype).on_host = true;
    EngineAction& copy =
        add(ActionKind::copy_to_device, index, group.partition, config_.model_dtype);
    copy.pinned = pinned;
    return;
  }
  // Up to 0.16: fp32_partition.to(device), then a cast on the GPU (changed by #7309).
  EngineAction& copy =
      add(ActionKind::copy_to_device, index, group.partition, config_.master_dtype);
  copy.pinned = pinned;
  copy.host_waits = true;
  add(ActionKind::update_weights, index, group.partition, config_.model_dtype);
}

void StepWriter::update_zero12_group(const FlatPartition& partition,
                                     std::span<const OwnedSlice> owned,
                                     int group) {
  const FlatGroup& flat = partition.groups[static_cast<std::size_t>(group)];
  const bool separate =
      config_.stage == 1 && config_.gradient_accumulation_dtype != config_.model_dtype;
  int pieces = 0;
  int zeros = 0;  // padding and parameters without a gradient: zeros in the accumulation dtype
  for (const OwnedSlice& slice : owned) {
    if (slice.group != group) continue;
    ++pieces;
    zeros += parameters_[static_cast<std::size_t>(slice.parameter)].used ? 0 : 1;
  }
  if (partition_padding(partition, group, partition_rank(config_)) > Elements::zero()) {
    ++pieces;
    ++zeros;
  }
  DType dtype = separate ? config_.gradient_accumulation_dtype : config_.model_dtype;
  if (zeros == pieces) dtype = config_.gradient_accumulation_dtype;
  // torch.cat promotes to the wider one.
  if (zeros > 0) dtype = wider(dtype, config_.gradient_accumulation_dtype);
  if (pieces > 1) add(ActionKind::flatten, group, flat.partition, dtype).pieces = pieces;
  if (dtype != config_.master_dtype) {
    add(ActionKind::cast, group, flat.partition, config_.master_dtype);
  }
  scale(group, flat.partition, config_.master_dtype);
  add(ActionKind::optimizer_step, group, flat.partition, config_.master_dtype).matrices =
      parameters_[static_cast<std::size_t>(flat.declared.front())].muon;
  add(ActionKind::update_weights, group, flat.partition, config_.model_dtype);
}

void StepWriter::zero12(bool overflowed) {
  const FlatPartition partition = flat_partition(config_, parameters_);
  const std::vector<OwnedSlice> owned = owned_slices(partition, partition_rank(config_));
  if (checks_overflow(config_)) {
    if (!offloads()) {
      for (const OwnedSlice& slice : owned) {
        add(ActionKind::overflow_scan, slice.group, slice.numel, config_.model_dtype).parameter =
            slice.parameter;
      }
    }
    agree_on_overflow();
  }
  if (overflowed) return;
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    for (const OwnedSlice& slice : owned) {
      if (offloads() || slice.group != static_cast<int>(g)) continue;
      add(ActionKind::norm, slice.group, slice.numel, config_.model_dtype).parameter =
          slice.parameter;
    }
    // With offload the squares were taken in backward and are summed on the host.
    collective(CollectiveKind::all_reduce, Elements::of(1), DType::fp32).host_waits = offloads();
  }
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    if (offloads()) {
      update_zero12_on_host(partition.groups[g], static_cast<int>(g));
    } else {
      update_zero12_group(partition, owned, static_cast<int>(g));
    }
  }
  gather_groups(partition);
}

// ---- stage 3 ----

// stage3.py _create_next_swappable_fp32_groups, pipelined_optimizer_swapper.py
// swap_out_optimizer_state: with pipeline_write all but the last are written beside what follows.
std::vector<StepWriter::Swapped> StepWriter::swapped_groups(
    std::span<const SubGroup> groups) const {
  std::vector<Swapped> result(groups.size());
  if (config_.offload_optimizer.device == OffloadDevice::nvme) {
    const OptimizerSwap swap = optimizer_swap(config_, parameters_, groups);
    bool is_last = true;
    for (std::size_t i = groups.size(); i-- > 0;) {
      if (!swap.swapped[i]) continue;
      result[i].read = swap.read[i];
      result[i].written = swap.written[i];
      result[i].copied = swap.copied[i];
      result[i].tensors = swap.tensors;
      result[i].waits = is_last || !config_.offload_optimizer.pipeline_write;
      is_last = false;
    }
  }
  if (config_.offload_parameter.device == OffloadDevice::nvme) {
    const ParameterSwap swap = parameter_swap(config_, parameters_, groups);
    for (std::size_t i = 0; i < groups.size(); ++i) result[i].weights = swap.written[i];
  }
  return result;
}

void StepWriter::update_sub_group(const SubGroup& group, int index, const Swapped& swapped) {
  const DType master = config_.master_dtype;
  if (swapped.read > Elements::zero()) {
    add(ActionKind::swap_in, index, swapped.read, master).pieces = swapped.tensors;
  }
  if (swapped.copied > Elements::zero()) {
    // optimizer_utils.py _retrieve_unswapped_grad_partitions
    EngineAction& copy = add(ActionKind::copy_to_host, index, swapped.copied, master);
    copy.pinned = true;
    copy.host_waits = true;
  }
  if (!offloads()) {
    if (group.parameters.size() > 1) {
      add(ActionKind::flatten, index, group.numel, config_.gradient_accumulation_dtype).pieces =
          static_cast<int>(group.parameters.size());
    }
    if (config_.gradient_accumulation_dtype != master) {
      add(ActionKind::cast, index, group.numel, master);
    }
  }
  scale(index, group.numel, master, group.on_host);
  add(ActionKind::optimizer_step, index, group.numel, master).on_host = group.on_host;
  const bool weights_on_host = config_.offload_parameter.device != OffloadDevice::none;
  EngineAction& update = add(ActionKind::update_weights, index, group.numel, config_.model_dtype);
  update.on_host = group.on_host;
  if (group.on_host && !weights_on_host) {
    // lp_flat.copy_(fp32_master): cast on the host into pageable memory, a blocking copy.
    EngineAction& copy = add(ActionKind::copy_to_device, index, group.numel, config_.model_dtype);
    copy.host_waits = true;
  } else if (!group.on_host && weights_on_host) {
    EngineAction& copy = add(ActionKind::copy_to_host, index, group.numel, config_.model_dtype);
    copy.pinned = true;
    copy.host_waits = true;
  }
  if (swapped.weights > Elements::zero()) {
    add(ActionKind::swap_out_weights, index, swapped.weights, config_.model_dtype);
  }
  if (swapped.written > Elements::zero()) {
    EngineAction& out = add(ActionKind::swap_out, index, swapped.written, master);
    out.pieces = swapped.tensors;
    out.host_waits = swapped.waits;
  }
}

// partition_parameters.py _allgather_params_coalesced and _allgather_params_sequential: one
// collective a parameter, a device synchronisation behind all of them.
void StepWriter::gather_persistent() {
  const std::vector<int> persistent = persistent_parameters(config_, parameters_);
  if (persistent.empty()) return;
  const PersistentGather gather = persistent_gather(config_, persistent.size());
  if (gather == PersistentGather::none) {
    add(ActionKind::host_wait_stream);
    return;
  }
  for (int parameter : persistent) {
    EngineAction& action = collective(CollectiveKind::all_gather,
                                      part(parameter) * partition_ranks(config_),
                                      config_.model_dtype);
    action.parameter = parameter;
    action.collective.asynchronous = gather == PersistentGather::asynchronous;
  }
  // Up to 0.17 one parameter alone is gathered without it (_allgather_params).
  if (gather == PersistentGather::sequential && !config_.acts(ReleaseRule::waits_after_lone_gather))
    return;
  add(ActionKind::host_wait_device);
}

void StepWriter::zero3(bool overflowed) {
  const std::vector<SubGroup> groups = sub_groups(config_, parameters_);
  add(ActionKind::release_parameters);
  if (checks_overflow(config_)) {
    Elements total;
    for (const SubGroup& group : groups) total += group.numel;
    EngineAction& scan =
        add(ActionKind::overflow_scan, -1, total, config_.gradient_accumulation_dtype);
    scan.on_host = offloads();
    if (config_.overlap_comm) {
      scan.stream = EngineStream::reduce;
      add(ActionKind::wait_stream).other = EngineStream::reduce;
    }
    agree_on_overflow();
  }
  if (overflowed) return;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (int parameter : groups[i].parameters) {
      if (offloads()) break;
      add(ActionKind::norm,
          static_cast<int>(i),
          part(parameter),
          config_.gradient_accumulation_dtype)
          .parameter = parameter;
    }
    EngineAction& agreed = collective(
        CollectiveKind::all_reduce, Elements::of(1), offloads() ? DType::fp32 : DType::fp64);
    agreed.collective.ranks = reduction_ranks(config_);
    agreed.host_waits = offloads();
  }
  const std::vector<Swapped> swapped = swapped_groups(groups);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    update_sub_group(groups[i], static_cast<int>(i), swapped[i]);
  }
  gather_persistent();
}

}  // namespace

std::int64_t overflow_scan_kernels(const EngineConfig& config) {
  return config.acts(ReleaseRule::scan_reduces_first) ? 14 : 5;
}

bool checks_overflow(const EngineConfig& config) {
  if (optimizer_wrapper(config) == OptimizerWrapper::bf16_optimizer) return false;
  if (config.model_dtype == DType::fp16) return true;
  return config.model_dtype == DType::bf16 && config.stage < 3 &&
         config.acts(ReleaseRule::checks_bf16_overflow) && config.check_gradient_overflow;
}

void optimizer_step(const EngineConfig& config,
                    std::span<const EngineParameter> parameters,
                    bool overflowed,
                    EngineActions& out) {
  StepWriter writer(config, parameters, out);
  const OptimizerWrapper wrapper = optimizer_wrapper(config);
  switch (wrapper) {
    case OptimizerWrapper::plain:
      writer.plain();
      break;
    case OptimizerWrapper::fp16_fused:
    case OptimizerWrapper::fp16_unfused:
      if (!overflowed) writer.dense(wrapper);
      break;
    case OptimizerWrapper::bf16_optimizer:
      writer.bf16_optimizer();
      break;
    case OptimizerWrapper::zero12:
      writer.zero12(overflowed);
      break;
    case OptimizerWrapper::zero3:
    case OptimizerWrapper::mics:
      writer.zero3(overflowed);
      break;
  }
}

}  // namespace zeroplan
