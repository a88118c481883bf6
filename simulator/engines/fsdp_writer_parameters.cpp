// fully_shard: gathers, copies out and reduces parameter by parameter. Everything is allocated and
// freed on streams that wait for each other, so that no block waits for an event.
// Source: torch 2.11 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
// _fsdp_collectives.py.
#include "simulator/engines/fsdp_writer.hpp"

namespace zeroplan::simulator {

void FsdpWriter::make_parameter_slots() {
  message_ = writer_.new_slot();
  for (std::size_t unit = 0; unit < slots_.size(); ++unit) {
    UnitSlots& slots = slots_[unit];
    slots.copied = writer_.new_event();
    slots.reduced = writer_.new_event();
    slots.holds_gradients.assign(fsdp_.units[unit].parameters.size(), false);
    for (std::size_t i = 0; i < fsdp_.units[unit].parameters.size(); ++i) {
      slots.copies.push_back(writer_.new_slot());
      slots.gradients.push_back(writer_.new_slot());
    }
  }
}

// A unit's parameters come to the GPU whole, padded shards are made of all of them, and fully_shard
// lets go of the whole ones when it returns (_move_states_to_device; _fsdp_param.py
// _init_sharded_param).
void FsdpWriter::wrap_parameters(int index) {
  const FsdpUnit& unit = unit_of(index);
  std::vector<SlotIndex> whole;
  for (const int parameter : unit.parameters) whole.push_back(bring(parameter));
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    if (buffer.index != index || buffer.category != kParameters || buffer_held_[i]) continue;
    buffer_held_[i] = true;
    if (buffer.place == BufferPlace::gpu) {
      hold_buffer(writer_, buffer, i);
    }
  }
  for (const SlotIndex slot : whole) writer_.release(slot);
}

// foreach_all_gather: the shards are cast, copied into their place in the message, and sent.
void FsdpWriter::gather_parameters(const FsdpEvent& event) {
  const FsdpUnit& unit = unit_of(event.unit);
  UnitSlots& slots = slots_of(event.unit);
  if (slots.holds_gathered || slots.holds_copies || config_.shard_ranks == 1) return;
  const Bytes part = sent_bytes(config_, unit);
  const Bytes stored = stored_bytes(config_, unit);
  const Bytes cast = cast_bytes(config_, unit);
  if (config_.offload) {
    writer_.allocate(slots.shard, stored, kCommunication, unshard_, Purpose::weights_from_host);
    writer_.issue(host_copy(TaskKind::copy_to_device, stored), unshard_);
  }
  const bool casts = cast > Bytes::zero();
  if (casts) {
    writer_.allocate(slots.cast, cast, kCommunication, unshard_, Purpose::shard_cast);
    writer_.issue(tasks_.kernel("cast shard", cast + stored), unshard_);
  }
  writer_.allocate(slots.gathered, event.bytes, kCommunication, unshard_, Purpose::gathered_unit);
  writer_.issue(tasks_.kernel("copy in", part * 2), unshard_);
  if (casts) writer_.release(slots.cast);
  if (config_.offload) writer_.release(slots.shard);
  slots.holds_gathered = true;
  const CollectiveGroup group = communicators_.group_of(event.ranks);
  communicators_.launch(
      unshard_, tasks_.collective(Collective::all_gather, event.bytes, group), group, false);
  writer_.record_event(slots.ready, unshard_);
}

// wait_for_unshard: in forward a message lives until the next unit is copied out, in backward it
// goes at once.
void FsdpWriter::copy_out(int index, bool forward) {
  if (index < 0) return;
  const FsdpUnit& unit = unit_of(index);
  UnitSlots& slots = slots_of(index);
  const bool sent = config_.shard_ranks > 1;
  if (slots.holds_copies || (sent && !slots.holds_gathered)) return;
  if (forward) drop_gathered();
  if (sent) writer_.stream_wait(kComputeStream, slots.ready);
  for (std::size_t i = 0; i < slots.copies.size(); ++i) {
    const Elements whole = unit.shards[i] * config_.shard_ranks;
    const EngineParameter& p =
        plan_.engine_parameters[static_cast<std::size_t>(unit.parameters[i])];
    const DType dtype = p.trainable ? computed_dtype(config_, unit) : config_.compute_dtype;
    writer_.allocate(
        slots.copies[i], whole * dtype, kParameters, kComputeStream, Purpose::copied_out);
  }
  slots.holds_copies = true;
  writer_.issue(tasks_.kernel("copy out", gathered_bytes(config_, unit) * 2), kComputeStream);
  if (!sent) return;
  writer_.record_event(slots.copied, kComputeStream);
  slots.holds_gathered = false;
  if (forward) {
    writer_.move(slots.gathered, message_);  // its backward pass gathers the unit again
    gathered_last_ = index;
    return;
  }
  writer_.stream_wait(unshard_, slots.copied);
  writer_.release(slots.gathered);
}

// Also when the root's forward pass ends (_fsdp_state.py _post_forward).
void FsdpWriter::drop_gathered() {
  if (gathered_last_ < 0) return;
  writer_.stream_wait(unshard_, slots_of(gathered_last_).copied);
  writer_.release(message_);
  gathered_last_ = -1;
}

void FsdpWriter::reshard_parameters(int unit) {
  UnitSlots& slots = slots_of(unit);
  if (!slots.holds_copies) return;
  slots.holds_copies = false;
  for (const SlotIndex copy : slots.copies) writer_.release(copy);
}

// AccumulateGrad: kept as it comes, or added to what micro-steps without a reduction left.
void FsdpWriter::keep_gradient(std::int32_t parameter, SlotIndex slot) {
  const int index = fsdp_.unit_of_parameter[static_cast<std::size_t>(parameter)];
  const FsdpUnit& unit = unit_of(index);
  UnitSlots& slots = slots_of(index);
  std::size_t place = 0;
  while (unit.parameters[place] != parameter) ++place;
  if (!slots.holds_gradients[place]) {
    writer_.move(slot, slots.gradients[place]);
    slots.holds_gradients[place] = true;
    return;
  }
  const Bytes bytes = plan_.engine_parameters[static_cast<std::size_t>(parameter)].numel *
                      computed_dtype(config_, unit);
  writer_.issue(tasks_.kernel("add gradient", bytes * 3), kComputeStream);
  writer_.release(slot);
}

void FsdpWriter::drop_sent() {
  if (reduced_last_ < 0) return;
  writer_.stream_wait(kComputeStream, slots_of(reduced_last_).reduced);
  writer_.release(slots_of(reduced_last_).input);
  reduced_last_ = -1;
}

// foreach_reduce: gradients are copied into the message, which lives until the next unit's; the
// reduced shards become views of one tensor in the shards' dtype.
void FsdpWriter::reduce_parameters(const FsdpEvent& event) {
  const FsdpUnit& unit = unit_of(event.unit);
  UnitSlots& slots = slots_of(event.unit);
  drop_sent();
  const Bytes input = unit.reduced * event.dtype;
  writer_.allocate(slots.input, input, kCommunication, kComputeStream, Purpose::unit_gradients);
  writer_.issue(tasks_.kernel("copy in", unit.reduced * computed_dtype(config_, unit) + input),
                kComputeStream);
  for (std::size_t i = 0; i < slots.gradients.size(); ++i) {
    if (slots.holds_gradients[i]) writer_.release(slots.gradients[i]);
    slots.holds_gradients[i] = false;
  }
  writer_.wait_stream(reduce_, kComputeStream);
  const DType stored = stored_dtype(config_, unit);
  const Bytes kept = unit.owned * stored;
  const bool casts = event.dtype != stored;
  const bool adds = slots.holds_gradient;
  const SlotIndex fresh = adds ? writer_.new_slot() : slots.gradient;
  const SlotIndex reduced = casts ? slots.output : fresh;
  writer_.allocate(reduced,
                   unit.owned * event.dtype,
                   casts ? kCommunication : kGradients,
                   reduce_,
                   casts ? Purpose::reduced_shard : Purpose::shard_gradients);
  const CollectiveGroup group = communicators_.group_of(event.ranks);
  communicators_.launch(
      reduce_, tasks_.collective(Collective::reduce_scatter, input, group), group, false);
  writer_.record_event(slots.reduced, reduce_);
  reduced_last_ = event.unit;
  if (casts) {
    writer_.allocate(fresh, kept, kGradients, reduce_, Purpose::shard_gradients);
    writer_.issue(tasks_.kernel("keep gradient", kept * 2), reduce_);
    writer_.release(slots.output);
  }
  if (config_.offload) {
    writer_.issue(host_copy(TaskKind::copy_to_host, kept), reduce_);
    writer_.release(fresh);
  } else if (adds) {
    writer_.issue(tasks_.kernel("add gradient", kept * 3), reduce_);
    writer_.release(fresh);
  } else {
    slots.holds_gradient = true;
  }
}

}  // namespace zeroplan::simulator
