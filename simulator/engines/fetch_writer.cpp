#include "simulator/engines/fetch_writer.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/engine/partition.hpp"
#include "model/engine/swapping.hpp"
#include "model/releases.hpp"

namespace zeroplan::simulator {
namespace {

// partitioned_param_coordinator.py __max_ongoing_fetch_events
constexpr std::int64_t kOutstandingFetches = 2;

Collective kind_of(FetchCollective op) {
  switch (op) {
    case FetchCollective::all_reduce:
      return Collective::all_reduce;
    case FetchCollective::broadcast:
      return Collective::broadcast;
    case FetchCollective::all_gather:
      break;
  }
  return Collective::all_gather;
}

}  // namespace

FetchWriter::FetchWriter(const Plan& plan,
                         const EngineConfig& config,
                         ProgramWriter& writer,
                         TaskTable& tasks,
                         Communicators& communicators,
                         StreamId gather,
                         Of of)
    : plan_(plan),
      config_(config),
      writer_(writer),
      tasks_(tasks),
      communicators_(communicators),
      gather_(gather),
      purpose_(of == Of::beside ? Purpose::weights_beside : Purpose::of_slot) {
  const std::size_t parameters = plan.engine_parameters.size();
  if (config.offload_parameter.device == OffloadDevice::nvme) {
    weights_read_ = writer.add_stream("NVMe read weights");
    weight_reads_ =
        parameter_swap(config, plan.engine_parameters, sub_groups(config, plan.engine_parameters))
            .read;
  }
  parameter_slots_ = slots_of_parameters(SlotKind::gathered_parameter, of);
  secondary_slots_ = slots_of_parameters(SlotKind::secondary_parameter, of);
  parameter_held_.resize(parameters, false);
  secondary_held_.resize(parameters, false);
  for (std::size_t p = 0; p < parameters; ++p) parameter_events_.push_back(writer.new_event());
  fetch_queue_ = writer.new_queue();
  if (of == Of::beside) return;  // nothing is saved for a backward pass
  saved_slots_ = slots_of_parameters(SlotKind::saved_parameter, of);
  saved_held_.resize(parameters, false);
  saved_with_graph_.resize(parameters, false);
  kept_ = kept_weights(plan, config);
}

std::vector<SlotIndex> FetchWriter::slots_of_parameters(SlotKind kind, Of of) {
  const auto parameters = static_cast<std::int32_t>(plan_.engine_parameters.size());
  const SlotIndex first =
      of == Of::trained ? writer_.new_slots(kind, parameters) : writer_.new_slots(parameters);
  std::vector<SlotIndex> slots;
  for (std::int32_t p = 0; p < parameters; ++p) slots.push_back(first + p);
  return slots;
}

void FetchWriter::write(FetchLog& log) {
  for (const FetchEvent& event : log.events) write_event(log, event);
  log.clear();
}

void FetchWriter::write_event(const FetchLog& log, const FetchEvent& event) {
  const auto subject = static_cast<std::size_t>(std::max(0, event.subject));
  const StreamId stream = stream_of(event.stream);
  const Bytes bytes = event.elements * event.dtype;
  switch (event.kind) {
    case FetchEventKind::enter:
    case FetchEventKind::exit:
      writer_.issue(tasks_.host("hook", tasks_.host_costs().module_hook), kComputeStream);
      break;
    case FetchEventKind::collective:
      write_gather(log, event);
      break;
    case FetchEventKind::load:
      hold(subject, bytes, stream);
      writer_.issue(
          tasks_.copy(TaskKind::copy_to_device, bytes, config_.offload_parameter.pin_memory, 1),
          stream);
      break;
    case FetchEventKind::swap_in:
      read_weights(log, event);
      break;
    case FetchEventKind::swap_wait:
      writer_.host_wait_stream(weights_read_);
      break;
    case FetchEventKind::throttle:
      writer_.throttle(fetch_queue_, kOutstandingFetches);
      break;
    case FetchEventKind::wait:
      writer_.stream_wait(stream, parameter_events_[subject]);
      release_own_part(event.subject);
      break;
    case FetchEventKind::copy:
      hold(subject, bytes, stream);
      writer_.issue(tasks_.kernel("join pieces", bytes * 2), stream);
      break;
    case FetchEventKind::record:
      writer_.queue_event(fetch_queue_, stream);
      break;
    case FetchEventKind::compute_waits:
      writer_.wait_stream(kComputeStream, gather_);
      break;
    case FetchEventKind::bucket_done:
      drop_bucket(event);
      break;
    case FetchEventKind::secondary:
      keep_secondary(event);
      break;
    case FetchEventKind::release:
      release_parameter(event.subject);
      break;
    case FetchEventKind::agreement:
      agree(event);
      break;
    case FetchEventKind::host_waits_stream:
      writer_.host_wait_stream(stream);
      break;
    case FetchEventKind::device_synchronize:  // behind the gathers of persistent weights
      release_own_parts();
      writer_.host_wait_device();
      break;
    case FetchEventKind::micro_step:
      ZP_CHECK(own_parts_.empty(), "a gather goes on that the end of a micro-step waited for");
      break;
    case FetchEventKind::backward:
    case FetchEventKind::invalidated:
    case FetchEventKind::fetch:
    case FetchEventKind::prefetch:
    case FetchEventKind::leftovers:
    case FetchEventKind::release_all:
      break;
  }
}

void FetchWriter::hold(std::size_t parameter, Bytes bytes, StreamId stream) {
  writer_.allocate(
      parameter_slots_[parameter], bytes, MemoryCategory::parameters, stream, purpose_);
  parameter_held_[parameter] = true;
}

// Handles of equal size are dropped in the order in which they were made.
void FetchWriter::drop_bucket(const FetchEvent& event) {
  const auto found =
      std::find_if(flat_buffers_.begin(), flat_buffers_.end(), [&](const FlatBuffer& flat) {
        return flat.elements == event.elements;
      });
  ZP_CHECK(found != flat_buffers_.end(), "a bucket is dropped that was never gathered");
  release_slot(found->slot);
  flat_buffers_.erase(found);
}

void FetchWriter::agree(const FetchEvent& event) {
  const CollectiveGroup group = communicators_.group_of(partition_ranks(config_));
  communicators_.launch(
      kComputeStream,
      tasks_.collective(Collective::broadcast, event.elements.times_width(8), group),
      group,
      false);
  writer_.host_wait_stream(kComputeStream);
}

// One collective: its output buffer, the own part where it comes from the host, the launch.
void FetchWriter::write_gather(const FetchLog& log, const FetchEvent& event) {
  const StreamId stream = stream_of(event.stream);
  const Bytes bytes = event.elements * event.dtype;
  const std::span<const ParameterIndex> parameters = log.parameters_of(event);
  writer_.issue(tasks_.host("fetch", tasks_.host_costs().zero3_event), kComputeStream);
  if (parameters.size() == 1) {
    hold(static_cast<std::size_t>(parameters[0]), bytes, stream);
  } else {
    const SlotIndex output = free_slot();
    writer_.allocate(
        output, bytes, MemoryCategory::communication_buffers, stream, Purpose::gathered_together);
    flat_buffers_.push_back({output, event.elements});
  }
  const std::vector<SlotIndex> own_parts = bring_own_parts(log, event);
  if (parameters.size() > 1) {
    writer_.issue(tasks_.kernel("own part", bytes / event.group * 2), stream);
    for (const SlotIndex part : own_parts) release_slot(part);
  }
  const CollectiveGroup group = communicators_.group_of(event.group);
  communicators_.launch(stream, tasks_.collective(kind_of(event.op), bytes, group), group, true);
  const StreamId nccl = group.ranks() > 1 ? communicators_.stream_of(group) : stream;
  if (parameters.size() == 1 && !own_parts.empty()) {
    keep_own_part(parameters[0], own_parts[0], nccl);
  }
  for (const ParameterIndex p : parameters) {
    writer_.record_event(parameter_events_[static_cast<std::size_t>(p)], nccl);
  }
}

// The input of a gather of one parameter. Up to torch 2.7 NCCL's process group records its stream
// on it; from 2.8 on it refers to it until the gather is waited for.
void FetchWriter::keep_own_part(ParameterIndex parameter, SlotIndex part, StreamId nccl) {
  if (plan_.software.torch_acts(ReleaseRule::holds_tensors_for_nccl)) {
    own_parts_.push_back({parameter, part});
    return;
  }
  writer_.use_on_stream(part, nccl);
  release_slot(part);
}

void FetchWriter::release_own_part(ParameterIndex parameter) {
  const auto found = std::find_if(own_parts_.begin(), own_parts_.end(), [&](const OwnPart& part) {
    return part.parameter == parameter;
  });
  if (found == own_parts_.end()) return;
  release_slot(found->slot);
  own_parts_.erase(found);
}

void FetchWriter::release_own_parts() {
  for (const OwnPart& part : own_parts_) release_slot(part.slot);
  own_parts_.clear();
}

// Offloaded partitions come over the bus before every gather, parameter by parameter, each into a
// tensor of its own, and the host waits for each: Tensor.to() without non_blocking
// (partition_parameters.py _all_gather_dtype, _all_gather_sequential, in every release). What is
// computed meanwhile is what was launched before: the prefetch of later modules stands before the
// launches of the module at hand. Recorded by rehearsals of 0.14.2 to 0.19.6
// (tests/reference/rehearsal/work.jsonl). The embedded runtime copies into the gather's buffer.
std::vector<SlotIndex> FetchWriter::bring_own_parts(const FetchLog& log, const FetchEvent& event) {
  std::vector<SlotIndex> parts;
  if (config_.offload_parameter.device == OffloadDevice::none) return parts;
  const StreamId stream = stream_of(event.stream);
  for (const ParameterIndex p : log.parameters_of(event)) {
    const Elements numel = plan_.engine_parameters[static_cast<std::size_t>(p)].numel;
    const Bytes part = partitioned_numel(numel, std::max(1, event.group)) * event.dtype;
    if (!config_.embedded) {
      parts.push_back(free_slot());
      writer_.allocate(parts.back(),
                       part,
                       MemoryCategory::communication_buffers,
                       stream,
                       Purpose::weights_from_host);
    }
    writer_.issue(tasks_.copy(TaskKind::copy_to_device,
                              part,
                              config_.offload_parameter.pin_memory,
                              plan_.cluster.gpus_per_node()),
                  stream);
    writer_.host_wait_stream(stream);
  }
  return parts;
}

// One request into the pool's pinned buffers (partitioned_param_swapper.py swap_in).
void FetchWriter::read_weights(const FetchLog& log, const FetchEvent& event) {
  Elements read;
  for (const ParameterIndex p : log.parameters_of(event)) {
    read += weight_reads_[static_cast<std::size_t>(p)];
  }
  writer_.issue(tasks_.nvme(true, read * config_.model_dtype), weights_read_);
}

// --- hpZ

void FetchWriter::make_secondary_partitions(std::span<const EngineBuffer> buffers) {
  for (const EngineBuffer& buffer : buffers) {
    if (buffer.name != BufferName::ds_secondary_tensor || buffer.place != BufferPlace::gpu) {
      continue;
    }
    const auto p = static_cast<std::size_t>(buffer.index);
    writer_.allocate(secondary_slots_[p], buffer.bytes, buffer.category, kComputeStream, purpose_);
    secondary_held_[p] = true;
  }
}

// stage3.py invalidate_secondary_tensor: after the step, what is trained is out of date.
void FetchWriter::drop_secondary_partitions() {
  for (std::size_t p = 0; p < secondary_held_.size(); ++p) {
    if (!secondary_held_[p] || !plan_.engine_parameters[p].trainable) continue;
    writer_.release(secondary_slots_[p]);
    secondary_held_[p] = false;
  }
}

// The secondary partition stays where the partitions are, on the GPU or in host memory
// (partition_parameters.py _partition_param_sec: remote_device).
void FetchWriter::keep_secondary(const FetchEvent& event) {
  const auto subject = static_cast<std::size_t>(event.subject);
  const Bytes bytes = event.elements * event.dtype;
  if (config_.offload_parameter.device != OffloadDevice::none) {
    writer_.issue(tasks_.copy(TaskKind::copy_to_host,
                              bytes,
                              config_.offload_parameter.pin_memory,
                              plan_.cluster.gpus_per_node()),
                  kComputeStream);
    return;  // the engine waits for the stream in any case
  }
  if (!secondary_held_[subject]) {
    writer_.allocate(
        secondary_slots_[subject], bytes, MemoryCategory::parameters, kComputeStream, purpose_);
    secondary_held_[subject] = true;
  }
  writer_.issue(tasks_.kernel("secondary copy", bytes * 2), kComputeStream);
}

// --- releases

// partition_parameters.py free_param: the storage goes once the compute stream is done with it.
void FetchWriter::release_parameter(std::int32_t parameter) {
  const auto p = static_cast<std::size_t>(parameter);
  if (!parameter_held_[p]) return;
  parameter_held_[p] = false;
  const bool reentrant = checkpoints_reentrantly(plan_);
  if (!kept_.empty() && pass_ && !saved_held_[p] && keeps_weight(kept_[p], *pass_, reentrant)) {
    writer_.move(parameter_slots_[p], saved_slots_[p]);
    saved_held_[p] = true;
    saved_with_graph_[p] =
        kept_[p] == KeptWeight::by_graph && (!reentrant || *pass_ == Pass::forward);
    return;
  }
  if (gather_ != kComputeStream) writer_.use_on_stream(parameter_slots_[p], kComputeStream);
  writer_.release(parameter_slots_[p]);
}

void FetchWriter::release_saved_weights(const BlockInstance& instance) {
  if (kept_.empty()) return;
  for (const std::int32_t parameter : instance.parameters) {
    release_saved_weight(parameter);
  }
}

void FetchWriter::release_saved_weight(std::int32_t parameter) {
  const auto p = static_cast<std::size_t>(parameter);
  if (saved_held_.empty() || !saved_held_[p] || saved_with_graph_[p]) return;
  saved_held_[p] = false;
  release_kept(saved_slots_[p]);
}

void FetchWriter::release_kept(SlotIndex slot) {
  if (gather_ != kComputeStream) writer_.use_on_stream(slot, kComputeStream);
  writer_.release(slot);
}

void FetchWriter::end_graph() {
  pass_.reset();
  for (std::size_t p = 0; p < saved_held_.size(); ++p) {
    if (!saved_held_[p] || !saved_with_graph_[p]) continue;
    saved_held_[p] = false;
    release_kept(saved_slots_[p]);
  }
}

SlotIndex FetchWriter::free_slot() {
  if (free_slots_.empty()) return writer_.new_slot();
  const SlotIndex slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void FetchWriter::release_slot(SlotIndex slot) {
  writer_.release(slot);
  free_slots_.push_back(slot);
}

}  // namespace zeroplan::simulator
