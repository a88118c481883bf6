// EngineActions as instructions: what each makes on which stream. Sources: engine_action.hpp and
// the files that write the actions.
#include <algorithm>

#include "model/engine/action_work.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/releases.hpp"
#include "simulator/engines/deepspeed_writer.hpp"

namespace zeroplan {
namespace {

constexpr MemoryCategory kCommunication = MemoryCategory::communication_buffers;
constexpr MemoryCategory kTemporaries = MemoryCategory::temporaries;

}  // namespace

StreamId DeepSpeedWriter::stream_of(EngineStream stream) const {
  switch (stream) {
    case EngineStream::reduce:
      return reduce_;
    case EngineStream::gather:
      return gather_;
    case EngineStream::compute:
      break;
  }
  return kComputeStream;
}

void DeepSpeedWriter::write_actions(const EngineActions& actions) {
  reads_.clear();
  next_read_ = 0;
  for (const EngineAction& action : actions.actions) {
    if (action.kind != ActionKind::swap_in) continue;
    reads_.push_back(tasks_.action(config_, action));
  }
  for (const EngineAction& action : actions.actions) write_action(actions, action);
}

void DeepSpeedWriter::write_action(const EngineActions& actions, const EngineAction& action) {
  const StreamId stream = stream_of(action.stream);
  switch (action.kind) {
    case ActionKind::gradient_ready:
      write_gradient_hook();
      break;
    case ActionKind::accumulate_gradient:
      accumulate_gradient(action);
      break;
    case ActionKind::insert_gradient:
    case ActionKind::list_gradient:
    case ActionKind::keep_outside:
      join_bucket(action);
      break;
    case ActionKind::release_gradients:
      release_waiting_gradients();
      break;
    case ActionKind::drop_gradients:
      drop_gradients(actions.members_of(action));
      break;
    case ActionKind::add_to_master_gradient:
      transient_for_a_kernel(
          action.elements * action.dtype, stream, tasks_.action(config_, action));
      break;
    case ActionKind::flush:
      release_transients();
      if (config_.stage == 3) {
        writer_.issue(tasks_.host("reduce", tasks_.host_costs().zero3_event), kComputeStream);
      }
      break;
    case ActionKind::flatten:
    case ActionKind::concatenate:
      transient(action.elements * action.dtype,
                action.in_step ? kTemporaries : kCommunication,
                stream,
                tasks_.action(config_, action));
      release_casts(action.pieces);
      break;
    case ActionKind::cast:
      write_cast(action);
      break;
    case ActionKind::collective:
      write_collective(action);
      break;
    case ActionKind::copy_back:
      issue(action);
      release_transients();
      break;
    case ActionKind::keep_owned:
      if (!owned_ready_) release_transients();  // the flattened bucket is gone by then
      make_owned_storage();
      issue(action);
      break;
    case ActionKind::make_owned:
      make_owned_storage();
      break;
    case ActionKind::divide:
    case ActionKind::keep_partitions:
    case ActionKind::accumulate_on_host:
      issue(action);
      break;
    case ActionKind::gradient_to_master:
    case ActionKind::norm:
    case ActionKind::overflow_scan:
    case ActionKind::scale:
    case ActionKind::optimizer_step:
    case ActionKind::update_weights:
      write_update(action);
      break;
    case ActionKind::copy_to_host:
    case ActionKind::copy_to_device:
      write_copy(action);
      break;
    case ActionKind::swap_in:
    case ActionKind::swap_out:
    case ActionKind::swap_out_weights:
      write_swap(action);
      break;
    case ActionKind::wait_stream:
      writer_.wait_stream(stream, stream_of(action.other));
      break;
    case ActionKind::host_wait_stream:
      host_blocks_on(stream);
      break;
    case ActionKind::host_wait_device:
      writer_.host_wait_device();
      break;
    case ActionKind::record_event:
      writer_.queue_event(reduce_queue_, stream);
      release_transients();
      for (const SlotIndex slot : handed_) release_slot(slot);
      handed_.clear();
      break;
    case ActionKind::throttle:
      writer_.throttle(reduce_queue_, action.pieces);
      break;
    case ActionKind::release_parameters:
      break;  // write_optimizer_step has done it
  }
}

void DeepSpeedWriter::issue(const EngineAction& action) {
  const TaskIndex task = tasks_.action(config_, action);
  if (task != kNoTask) writer_.issue(task, stream_of(action.stream));
}

// A tensor that lives until the flush or the group at hand is done with.
void DeepSpeedWriter::transient(Bytes bytes,
                                MemoryCategory category,
                                StreamId stream,
                                TaskIndex task) {
  const SlotIndex slot = free_slot();
  writer_.allocate(slot, bytes, category, stream);
  tasks_.touch(bytes);
  writer_.issue(task, stream);
  transients_.push_back(slot);
}

SlotIndex DeepSpeedWriter::free_slot() {
  if (free_slots_.empty()) return writer_.new_slot();
  const SlotIndex slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void DeepSpeedWriter::release_slot(SlotIndex slot) {
  writer_.release(slot);
  free_slots_.push_back(slot);
}

// In the optimizer's step the flat copy of a group goes once its cast is made
// (stage_1_and_2.py step, stage3.py _prepare_fp32_grad_for_sub_group).
void DeepSpeedWriter::write_cast(const EngineAction& action) {
  const std::vector<SlotIndex> flat = transients_;
  transient(action.elements * action.dtype,
            kTemporaries,
            stream_of(action.stream),
            tasks_.action(config_, action));
  if (!action.in_step) return;
  if (action.parameter >= 0) {
    casts_.push_back(take_last_transient());
    return;
  }
  for (const SlotIndex slot : flat) release_slot(slot);
  transients_.erase(transients_.begin(), transients_.end() - 1);
}

void DeepSpeedWriter::transient_for_a_kernel(Bytes bytes, StreamId stream, TaskIndex task) {
  transient(bytes, kTemporaries, stream, task);
  release_slot(take_last_transient());
}

// The last casts of gradients one by one, once a flat copy of them is made (fused_optimizer.py
// step).
void DeepSpeedWriter::release_casts(int count) {
  const auto last = static_cast<std::size_t>(std::max(count, 0));
  for (std::size_t i = 0; i < last && !casts_.empty(); ++i) {
    release_slot(casts_.back());
    casts_.pop_back();
  }
}

void DeepSpeedWriter::release_partition() {
  for (std::optional<SlotIndex>* slot : {&partition_cast_, &fetched_partition_}) {
    if (*slot) release_slot(**slot);
    slot->reset();
  }
}

void DeepSpeedWriter::release_transients() {
  release_casts(static_cast<int>(casts_.size()));
  release_partition();
  for (const SlotIndex slot : transients_) release_slot(slot);
  transients_.clear();
}

void DeepSpeedWriter::host_blocks_on(StreamId stream) { writer_.host_wait_stream(stream); }

void DeepSpeedWriter::write_collective(const EngineAction& action) {
  const StreamId stream = stream_of(action.stream);
  const Bytes bytes = action.elements * action.dtype;
  const EngineCollective& what = action.collective;
  // Behind the update stage 3 gathers its persistent weights: the coordinator's log has them, with
  // the memory they take (end_optimizer_step).
  if (config_.stage == 3 && action.in_step && what.kind == CollectiveKind::all_gather) return;
  const bool across = what.across || what.ranks < partition_ranks(config_);
  const bool inside =
      what.kind == CollectiveKind::all_to_all && what.ranks <= config_.ranks_per_node;
  const CollectiveGroup group = communicators_.group_of(what.ranks, across && !inside);
  // A barrier is NCCL's all-reduce of one element.
  const Collective kind = collective_of(what.kind).value_or(Collective::all_reduce);
  communicators_.launch(
      stream, tasks_.collective(kind, bytes, group, action.dtype), group, what.asynchronous);
  if (action.host_waits) host_blocks_on(stream);
}

// A copy of pageable memory passes a staging buffer and blocks the host; so does what is said to.
void DeepSpeedWriter::write_copy(const EngineAction& action) {
  const TaskIndex copy = tasks_.action(config_, action);
  if (copy == kNoTask) return;
  const StreamId stream = stream_of(action.stream);
  const bool to_host = action.kind == ActionKind::copy_to_host;
  // Up to 0.16 stages 1 and 2 move the fp32 master and cast it on the GPU.
  const bool moves_master = action.in_step && config_.stage < 3 && action.host_waits && !to_host;
  const bool fetches_partition = keeps_reduced_bucket() && !action.in_step && !to_host;
  if (fetches_partition) release_partition();
  if (moves_master || fetches_partition) {
    transient(action.elements * action.dtype, kTemporaries, stream, copy);
  } else {
    writer_.issue(copy, stream);
  }
  if (fetches_partition) fetched_partition_ = take_last_transient();
  if (action.host_waits || !action.pinned) host_blocks_on(stream);
  if (action.in_step || !to_host) return;
  if (!keeps_reduced_bucket()) {
    release_transients();
  } else if (partition_cast_) {
    release_slot(*partition_cast_);
    partition_cast_.reset();
  }
}

// The reduced bucket's partitions are views of it, which stage3.py partition_grads copies one by
// one: it lives until the last is copied.
bool DeepSpeedWriter::keeps_reduced_bucket() const {
  return config_.stage == 3 && !config_.embedded;
}

SlotIndex DeepSpeedWriter::take_last_transient() {
  const SlotIndex slot = transients_.back();
  transients_.pop_back();
  return slot;
}

// stage_1_and_2.py _has_inf_or_nan: x.float(), isnan, isinf (of absolute values), their union, that
// in fp32. Of the other wrappers, and in fp32, what it makes is counted as one temporary.
void DeepSpeedWriter::write_overflow_scan(const EngineAction& action, Bytes scratch) {
  const StreamId stream = stream_of(action.stream);
  const TaskIndex scan = tasks_.action(config_, action);
  if (optimizer_wrapper(config_) != OptimizerWrapper::zero12 || scratch == Bytes::zero() ||
      action.dtype == DType::fp32) {
    transient_for_a_kernel(scratch, stream, scan);
    return;
  }
  const auto made = [&](Bytes bytes) {
    const SlotIndex slot = free_slot();
    writer_.allocate(slot, bytes, kTemporaries, stream);
    return slot;
  };
  const Bytes mask = action.elements.times_width(1);
  const Bytes floats = action.elements * DType::fp32;
  std::vector<SlotIndex> held = {made(floats), made(mask)};
  const SlotIndex absolute = made(floats);
  held.push_back(made(mask));
  release_slot(absolute);
  held.push_back(made(mask));
  held.push_back(made(floats));
  tasks_.touch(scratch);
  writer_.issue(scan, stream);
  for (; !held.empty(); held.pop_back()) release_slot(held.back());
}

void DeepSpeedWriter::write_update(const EngineAction& action) {
  if (action.on_host) {
    write_host_update(action);
    return;
  }
  const StreamId stream = stream_of(action.stream);
  const Bytes scratch = action_temporaries(config_, action);
  switch (action.kind) {
    case ActionKind::gradient_to_master:
      transient(scratch, kTemporaries, stream, tasks_.action(config_, action));
      // Freed behind the copy that follows; for NVMe behind those of the whole bucket (stage3.py
      // partition_grads, offload_fp32_gradients).
      if (!keeps_reduced_bucket()) return;
      if (action.group < 0) {
        partition_cast_ = take_last_transient();
      } else {
        handed_.push_back(take_last_transient());
      }
      return;
    case ActionKind::overflow_scan:
      write_overflow_scan(action, scratch);
      break;
    case ActionKind::optimizer_step:
      prepare_group(action.group);
      [[fallthrough]];
    case ActionKind::norm:
      transient_for_a_kernel(scratch, stream, tasks_.action(config_, action));
      break;
    case ActionKind::update_weights:
      issue(action);
      if (!prepares_all_groups(config_)) release_transients();
      break;
    default:
      issue(action);
      break;
  }
  if (action.host_waits) host_blocks_on(stream);
}

// The dispatch thread itself runs the CPU's optimizer and casts, and does nothing else meanwhile.
void DeepSpeedWriter::write_host_update(const EngineAction& action) {
  if (cpu_ < 0) cpu_ = writer_.add_stream("CPU");
  writer_.issue(tasks_.action(config_, action), cpu_);
  host_blocks_on(cpu_);
}

// Reads are one sub-group ahead where pipeline_read says so, begun once the one at hand is there;
// states are written once those before them are on the drive
// (swap_tensor/pipelined_optimizer_swapper.py swap_in_optimizer_state, swap_out_optimizer_state).
void DeepSpeedWriter::write_swap(const EngineAction& action) {
  const auto write = [&](StreamId stream) {
    const TaskIndex task = tasks_.action(config_, action);
    if (task != kNoTask) writer_.issue(task, stream);
  };
  switch (action.kind) {
    case ActionKind::swap_out_weights:
      write(nvme_.weights_written);
      host_blocks_on(nvme_.weights_written);
      return;
    case ActionKind::swap_out:
      if (action.group >= 0 && writes_) host_blocks_on(nvme_.written);
      write(nvme_.written);
      if (action.host_waits) host_blocks_on(nvme_.written);
      writes_ = action.group >= 0 && !action.host_waits;
      return;
    default:
      break;
  }
  const bool ahead = config_.offload_optimizer.pipeline_read;
  if (!ahead || next_read_ == 0) read_states(next_read_);
  writer_.host_wait(read_events_[next_read_]);
  ++next_read_;
  if (ahead) read_states(next_read_);
}

void DeepSpeedWriter::read_states(std::size_t group) {
  if (group >= reads_.size()) return;
  if (read_events_.size() <= group) read_events_.push_back(writer_.new_event());
  writer_.issue(reads_[group], nvme_.read);
  writer_.record_event(read_events_[group], nvme_.read);
}

}  // namespace zeroplan
