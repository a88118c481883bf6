// EngineActions as instructions: what each makes on which stream. Sources: engine_action.hpp and
// the files that write the actions.
#include <algorithm>

#include "model/engine/action_work.hpp"
#include "model/releases.hpp"
#include "model/step/engine_collective.hpp"
#include "simulator/engines/deepspeed_writer.hpp"

namespace zeroplan::simulator {

StreamId DeepSpeedWriter::stream_of(EngineStream stream) const {
  switch (stream) {
    case EngineStream::reduce:
      return streams_.reduce;
    case EngineStream::gather:
      return streams_.gather;
    case EngineStream::compute:
      break;
  }
  return kComputeStream;
}

void DeepSpeedWriter::write_actions(const EngineActions& actions) {
  if (swap_) swap_->begin(actions);
  for (const EngineAction& action : actions.actions) write_action(actions, action);
}

void DeepSpeedWriter::write_action(const EngineActions& actions, const EngineAction& action) {
  const StreamId stream = stream_of(action.stream);
  switch (action.kind) {
    case ActionKind::gradient_ready:
      // The Python of a gradient, in autograd's hook or in a loop after the pass.
      writer_.issue(tasks_.host("gradient hook", tasks_.host_costs().gradient_hook),
                    kComputeStream);
      break;
    case ActionKind::accumulate_gradient:
      gradients_.accumulate(action);
      break;
    case ActionKind::insert_gradient:
    case ActionKind::list_gradient:
    case ActionKind::keep_outside:
      gradients_.join_bucket(action, stream);
      break;
    case ActionKind::release_gradients:
      gradients_.release_waiting();
      break;
    case ActionKind::drop_gradients:
      gradients_.drop(actions.members_of(action));
      break;
    case ActionKind::add_to_master_gradient:
      transients_.make_for_a_kernel(made_by(action));
      break;
    case ActionKind::flush:
      transients_.release_all();
      if (config_.stage == 3) {
        writer_.issue(tasks_.host("reduce", tasks_.host_costs().zero3_event), kComputeStream);
      }
      break;
    case ActionKind::flatten:
    case ActionKind::concatenate: {
      TransientSlots::Made flat = made_by(action);
      if (!action.in_step) flat.category = MemoryCategory::communication_buffers;
      transients_.make(flat);
      transients_.release_casts(action.pieces);
      break;
    }
    case ActionKind::cast:
      write_cast(action);
      break;
    case ActionKind::collective:
      write_collective(action);
      break;
    case ActionKind::copy_back:
      issue(action);
      transients_.release_all();
      break;
    case ActionKind::keep_owned:
      if (!buffers_.owned_ready()) transients_.release_all();  // the flattened bucket is gone
      buffers_.make_owned();
      issue(action);
      break;
    case ActionKind::make_owned:
      buffers_.make_owned();
      break;
    case ActionKind::orthogonalize:
      buffers_.make_momentum();
      transients_.make_for_newton_schulz(
          made_by(action),
          newton_schulz_tensors(action.matrices, config_.newton_schulz, action.dtype),
          [&] { buffers_.make_update(); });
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
      swap_->swap_in();
      break;
    case ActionKind::swap_out:
      swap_->swap_out(action);
      break;
    case ActionKind::swap_out_weights:
      fetches_->write_weights(tasks_.action(config_, action));
      break;
    case ActionKind::wait_stream:
      writer_.wait_stream(stream, stream_of(action.other));
      break;
    case ActionKind::host_wait_stream:
      writer_.host_wait_stream(stream);
      break;
    case ActionKind::host_wait_device:
      writer_.host_wait_device();
      break;
    case ActionKind::record_event:
      writer_.queue_event(reduce_queue_, stream);
      transients_.release_all();
      transients_.release_handed();
      break;
    case ActionKind::throttle:
      writer_.throttle(reduce_queue_, action.pieces);
      break;
    case ActionKind::release_parameters:
      break;  // write_optimizer_step has done it
  }
}

void DeepSpeedWriter::issue(const EngineAction& action) {
  tasks_.issue_action(config_, action, stream_of(action.stream));
}

namespace {

Purpose purpose_of(const EngineAction& action) {
  switch (action.kind) {
    case ActionKind::flatten:
    case ActionKind::concatenate:
      return action.in_step ? Purpose::step_flat_gradients : Purpose::flat_gradients;
    case ActionKind::norm:
      return Purpose::norm_copy;
    case ActionKind::overflow_scan:
      return Purpose::overflow_scan;
    case ActionKind::gradient_to_master:
      return Purpose::gradient_to_host;
    case ActionKind::orthogonalize:
    case ActionKind::optimizer_step:
      return Purpose::optimizer_temporary;
    default:
      return Purpose::step_gradients;
  }
}

}  // namespace

// The tensor that it is about, as a new one.
TransientSlots::Made DeepSpeedWriter::made_by(const EngineAction& action) {
  return {.bytes = action.elements * action.dtype,
          .purpose = purpose_of(action),
          .stream = stream_of(action.stream),
          .task = tasks_.action(config_, action)};
}

// In the optimizer's step the flat copy of a group goes once its cast is made
// (stage_1_and_2.py step, stage3.py _prepare_fp32_grad_for_sub_group); casts of gradients one by
// one once a flat copy of them is (fused_optimizer.py step).
void DeepSpeedWriter::write_cast(const EngineAction& action) {
  const TransientSlots::Made cast = made_by(action);
  if (!action.in_step) {
    transients_.make(cast);
  } else if (action.parameter >= 0) {
    transients_.make_cast(cast);
  } else {
    transients_.make_instead(cast);
  }
}

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
  if (action.host_waits) writer_.host_wait_stream(stream);
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
  const TransientSlots::Made made{
      action.elements * action.dtype,
      moves_master ? Purpose::master_from_host : Purpose::gradient_from_host,
      stream,
      copy};
  if (fetches_partition) {
    transients_.make_partition(made);
  } else if (moves_master) {
    transients_.make(made);
  } else {
    writer_.issue(copy, stream);
  }
  if (action.host_waits || !action.pinned) writer_.host_wait_stream(stream);
  if (action.in_step || !to_host) return;
  if (keeps_reduced_bucket()) {
    transients_.release_partition_cast();
  } else {
    transients_.release_all();
  }
}

// The reduced bucket's partitions are views of it, which stage3.py partition_grads copies one by
// one: it lives until the last is copied.
bool DeepSpeedWriter::keeps_reduced_bucket() const {
  return config_.stage == 3 && !config_.embedded;
}

// Of the wrappers but stages 1 and 2's, and in fp32, what a scan makes is counted as one temporary.
void DeepSpeedWriter::write_overflow_scan(const EngineAction& action, Bytes scratch) {
  TransientSlots::Made scan = made_by(action);
  scan.bytes = scratch;
  const bool in_parts = optimizer_wrapper(config_) == OptimizerWrapper::zero12 &&
                        scratch != Bytes::zero() && action.dtype != DType::fp32;
  if (in_parts) {
    transients_.make_for_a_scan(scan, action.elements);
  } else {
    transients_.make_for_a_kernel(scan);
  }
}

// Stages 1 and 2 drop the gradients once the last group's are cast (stage_1_and_2.py step:
// averaged_gradients[i] = None).
void DeepSpeedWriter::begin_group(int group) {
  const bool zero12 = optimizer_wrapper(config_) == OptimizerWrapper::zero12;
  const auto groups = static_cast<int>(reducer_.partition().groups.size());
  if (zero12 && !config_.embedded && group + 1 == groups) buffers_.release_consumed();
  buffers_.begin_group(group);
}

void DeepSpeedWriter::write_update(const EngineAction& action) {
  if (action.on_host) {
    write_host_update(action);
    return;
  }
  const Bytes scratch = action_temporaries(config_, action);
  const auto temporary = [&] {
    TransientSlots::Made made = made_by(action);
    made.bytes = scratch;
    return made;
  };
  switch (action.kind) {
    case ActionKind::gradient_to_master:
      // Freed behind the copy that follows; for NVMe behind those of the whole bucket (stage3.py
      // partition_grads, offload_fp32_gradients).
      if (!keeps_reduced_bucket()) {
        transients_.make(temporary());
      } else if (action.group < 0) {
        transients_.make_partition_cast(temporary());
      } else {
        transients_.make_handed(temporary());
      }
      return;
    case ActionKind::overflow_scan:
      write_overflow_scan(action, scratch);
      break;
    case ActionKind::optimizer_step:
      begin_group(action.group);
      [[fallthrough]];
    case ActionKind::norm:
      transients_.make_for_a_kernel(temporary());
      break;
    case ActionKind::update_weights:
      issue(action);
      if (!prepares_all_groups(config_)) transients_.release_all();
      break;
    default:
      issue(action);
      break;
  }
  if (action.host_waits) writer_.host_wait_stream(stream_of(action.stream));
}

// The dispatch thread itself runs the CPU's optimizer and casts, and does nothing else meanwhile.
void DeepSpeedWriter::write_host_update(const EngineAction& action) {
  if (streams_.cpu < 0) streams_.cpu = writer_.add_stream("CPU");
  writer_.issue(tasks_.action(config_, action), streams_.cpu);
  writer_.host_wait_stream(streams_.cpu);
}

}  // namespace zeroplan::simulator
