#include "simulator/engines/fsdp_writer.hpp"

#include <algorithm>
#include <utility>

#include "model/quantization.hpp"

namespace zeroplan::simulator {
namespace {

// Whether no later event computes with the unit: its flat parameter's gradient is complete.
bool is_last_use(const std::vector<FsdpEvent>& events, std::size_t i) {
  for (std::size_t j = i + 1; j < events.size(); ++j) {
    if (events[j].kind == FsdpEventKind::compute && events[j].unit == events[i].unit) return false;
  }
  return true;
}

// The unit that the next compute event is of.
int next_compute(const std::vector<FsdpEvent>& events, std::size_t i) {
  for (; i < events.size(); ++i) {
    if (events[i].kind == FsdpEventKind::compute) return events[i].unit;
  }
  return -1;
}

}  // namespace

FsdpWriter::FsdpWriter(const Plan& plan, const ModelGraph& graph, const VariedGraphs& varied)
    : plan_(plan),
      config_(plan.fsdp),
      model_graph_(graph),
      fsdp_(fsdp_work(plan, graph)),
      buffers_(fsdp_buffers(plan.fsdp, fsdp_.units)),
      writer_(rank_.program),
      tasks_(plan, writer_),
      graphs_(plan, graph, varied, writer_, tasks_),
      communicators_(plan.layout(), writer_),
      slots_(fsdp_.units.size()),
      buffer_held_(buffers_.size(), false) {
  writer_.add_stream("compute");
  unshard_ = writer_.add_stream("unshard");
  prepare_ = by_parameter() ? unshard_ : writer_.add_stream("pre-unshard");
  reduce_ = writer_.add_stream("reduce");
  if (!by_parameter()) graphs_.add_tied_parts_on(unshard_);
  free_events_ = writer_.new_queue();
  find_adapters();
  for (UnitSlots& slots : slots_) {
    for (SlotIndex* slot : {&slots.gathered,
                            &slots.shard,
                            &slots.cast,
                            &slots.flat,
                            &slots.input,
                            &slots.output,
                            &slots.gradient}) {
      *slot = writer_.new_slot();
    }
    slots.ready = writer_.new_event();
  }
  if (by_parameter()) make_parameter_slots();
}

RankProgram FsdpWriter::write() {
  if (plan_.beside != nullptr) beside_.emplace(plan_, writer_, communicators_);
  write_initialisation();
  const std::size_t first_steps = std::max<std::size_t>(1, graphs_.varied_steps());
  for (std::size_t i = 0; i < first_steps; ++i) {
    rank_.first_steps.push_back(write_step(i == 0));
  }
  if (beside_) beside_->keep_asleep();
  rank_.steady = write_step(false);
  return std::move(rank_);
}

void FsdpWriter::write_initialisation() {
  const std::size_t begin = writer_.position();
  writer_.mark(Phase::load);
  if (beside_) beside_->hold_weights();
  load_whole();
  writer_.mark(Phase::init);
  writer_.allocate(writer_.new_slot(),
                   model_graph_.buffers,
                   kParameters,
                   kComputeStream,
                   Purpose::registered_buffers);
  // The root is wrapped last. What the pieces leave in the allocator's cache is reserved from here
  // on.
  for (std::size_t unit = 1; unit < fsdp_.units.size(); ++unit) wrap_unit(static_cast<int>(unit));
  wrap_unit(0);
  allocate_buffers(BufferLifetime::resident);
  rank_.initialisation = writer_.since(begin);
}

// What from_pretrained leaves on the GPU before anything is sharded.
void FsdpWriter::load_whole() {
  if (!plan_.loads_whole) return;
  for (std::size_t p = 0; p < plan_.engine_parameters.size(); ++p) {
    loaded_.push_back(writer_.new_slot());
    writer_.allocate(loaded_.back(),
                     whole_bytes(config_, plan_.engine_parameters[p]),
                     kParameters,
                     kComputeStream,
                     Purpose::whole_unit);
  }
}

// A parameter on the GPU before its unit is made: there already, or moved now.
SlotIndex FsdpWriter::bring(int parameter) {
  const auto p = static_cast<std::size_t>(parameter);
  if (!loaded_.empty()) return loaded_[p];
  const SlotIndex slot = writer_.new_slot();
  writer_.allocate(slot,
                   whole_bytes(config_, plan_.engine_parameters[p]),
                   kTemporaries,
                   kComputeStream,
                   Purpose::whole_unit);
  return slot;
}

// The module's parameters come to the GPU one by one, are concatenated and padded, and the shard is
// cloned out of the whole. They go when they become views of the shard (_init_utils.py
// _init_param_handle_from_module, _flat_param.py flatten_tensors, shard, _use_sharded_views).
void FsdpWriter::wrap_unit(int index) {
  if (by_parameter()) {
    wrap_parameters(index);
    return;
  }
  const FsdpUnit& unit = unit_of(index);
  std::vector<SlotIndex> parameters;
  for (const int parameter : unit.parameters) parameters.push_back(bring(parameter));
  const SlotIndex flat = writer_.new_slot();
  const Bytes whole = unit.padded * stored_dtype(config_, unit);
  writer_.allocate(flat, whole, kTemporaries, kComputeStream, Purpose::whole_unit);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    const bool shard = buffer.index == index && buffer.category == kParameters;
    if (!shard || buffer.place != BufferPlace::gpu || buffer_held_[i]) continue;
    hold_buffer(writer_, buffer, i);
    buffer_held_[i] = true;
  }
  writer_.release(flat);
  for (const SlotIndex slot : parameters) writer_.release(slot);
}

// The first forward pass makes the tensors that units are cast to and gathered in, and frees their
// storage at once; it stays in the compute stream's cache (_flat_param.py
// init_flat_param_attributes).
void FsdpWriter::measure_gathered() {
  for (const FsdpUnit& unit : fsdp_.units) {
    const auto pass = [&](Bytes bytes) {
      const SlotIndex slot = writer_.new_slot();
      writer_.allocate(slot, bytes, kTemporaries, kComputeStream, Purpose::gathered_unit);
      writer_.release(slot);
    };
    const bool casts = casts_shards(config_, unit);
    if (casts) pass(cast_bytes(config_, unit));
    if (config_.sharding == Sharding::no_shard) continue;
    pass(gathered_bytes(config_, unit));
    if (casts) pass(unit.padded * stored_dtype(config_, unit));
  }
}

// Gradients are followed unit by unit.
void FsdpWriter::allocate_buffers(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    if (buffer.lifetime != lifetime || buffer_held_[i] || buffer.category == kGradients) continue;
    if (buffer.place != BufferPlace::gpu) continue;
    hold_buffer(writer_, buffer, i);
    buffer_held_[i] = true;
  }
}

StepSections FsdpWriter::write_step(bool first) {
  StepSections step;
  step.micro_steps = graphs_.write_step(
      rank_.first_steps.size(), config_.gradient_accumulation_steps, writer_, [&](int micro_step) {
        return write_micro_step(micro_step);
      });
  step.optimizer = write_optimizer_step(first);
  return step;
}

// zero_grad() sets the gradients of the original parameters, views of the shard's, to none; the
// shard's own goes in the next forward pass (_flat_param.py _reset_flat_param_grad_info_if_needed).
void FsdpWriter::drop_gradients() {
  for (UnitSlots& slots : slots_) {
    if (slots.holds_gradient) writer_.release(slots.gradient);
    slots.holds_gradient = false;
  }
}

Section FsdpWriter::write_micro_step(int micro_step) {
  const std::size_t begin = writer_.position();
  next_pass_ = 0;
  backward_began_ = false;
  writer_.set_label(-1);
  writer_.mark(Phase::forward);
  writer_.issue(tasks_.host("micro-step", tasks_.host_costs().micro_step), kComputeStream);
  if (micro_step == 0 && !by_parameter() && !config_.gradients_held) drop_gradients();
  drops_held_gradients_ = config_.gradients_held && micro_step == 0;
  graphs_.current().begin_micro_batch();
  ran_forward_ = false;
  if (beside_ && micro_step == 0) beside_->begin_step();
  if (beside_) beside_->write_passes(PassMoment::before_forward, graphs_.current());
  if (micro_step == 0 && rank_.first_steps.empty() && !by_parameter()) measure_gathered();
  const auto events = fsdp_micro_step(config_, fsdp_.units, fsdp_.visits, micro_step);
  const bool keeps_gradients = micro_step == 0 && !fsdp_reduces(config_, micro_step);
  std::vector<int> joined;  // units whose gradients are not yet those of their parameters
  for (std::size_t i = 0; i < events.size(); ++i) {
    const FsdpEvent& event = events[i];
    if (event.kind != FsdpEventKind::reshard) place_gradient_views(joined);
    if (event.backward) drop_gathered();
    if (event.backward && std::exchange(drops_held_gradients_, false)) drop_gradients();
    switch (event.kind) {
      case FsdpEventKind::unshard:
        // fully_shard prefetches once the unit at hand is copied out (pre_backward).
        if (by_parameter() && event.backward) copy_out(next_compute(events, i), false);
        unshard(event);
        break;
      case FsdpEventKind::compute:
        compute(event);
        // Autograd joins them before the post-backward hook frees what is gathered.
        if (!by_parameter() && event.backward && is_last_use(events, i)) {
          join_views(event.unit);
          if (keeps_gradients) joined.push_back(event.unit);
        }
        break;
      case FsdpEventKind::reshard:
        reshard(event.unit);
        break;
      case FsdpEventKind::rate_limit:
        writer_.throttle(free_events_, kGathersAhead);
        break;
      case FsdpEventKind::reduce_scatter:
      case FsdpEventKind::all_reduce:
        reduce(event);
        break;
    }
  }
  const bool keeps_gathered = fsdp_keeps_gathered(config_, micro_step);
  for (std::size_t unit = 0; unit < slots_.size() && !keeps_gathered; ++unit) {
    reshard(static_cast<int>(unit));
  }
  graphs_.current().release_loss();
  // _runtime_utils.py _post_backward_final_callback
  writer_.wait_stream(kComputeStream, reduce_);
  drop_sent();
  place_gradient_views(joined);
  for (std::size_t unit = 0; unit < slots_.size(); ++unit) join_views(static_cast<int>(unit));
  graphs_.current().release_outputs();
  graphs_.current().end_micro_batch();
  return writer_.since(begin);
}

// The shard is cast where it is stored wider, then gathered; the host waits where two gathered
// units are not free yet.
void FsdpWriter::unshard(const FsdpEvent& event) {
  const FsdpUnit& unit = unit_of(event.unit);
  UnitSlots& slots = slots_of(event.unit);
  if (by_parameter()) {
    gather_parameters(event);
    return;
  }
  if (unit.are_adapters && gathers_adapters_apart()) return;
  const bool whole = config_.sharding == Sharding::no_shard || config_.shard_ranks == 1;
  const bool casts = casts_shards(config_, unit);
  if (slots.holds_gathered || (whole && !casts)) return;
  const Bytes part = cast_bytes(config_, unit);
  const Bytes stored = stored_bytes(config_, unit);
  // _flat_param.py pre_unshard: an offloaded shard comes to the GPU first (flat_param_to).
  const bool prepares = config_.offload || (casts && !whole);
  if (config_.offload) {
    writer_.allocate(slots.shard, stored, kCommunication, prepare_, Purpose::weights_from_host);
    writer_.issue(host_copy(TaskKind::copy_to_device, stored), prepare_);
  }
  if (casts && !whole) {
    writer_.allocate(slots.cast, part, kCommunication, prepare_, Purpose::shard_cast);
    writer_.issue(tasks_.kernel("cast shard", part + stored), prepare_);
  }
  if (prepares) writer_.wait_stream(unshard_, prepare_);
  writer_.throttle(free_events_, kGathersAhead);
  writer_.allocate(slots.gathered, event.bytes, kParameters, unshard_, Purpose::gathered_unit);
  slots.holds_gathered = true;
  if (whole) {
    writer_.issue(tasks_.kernel("cast shard", part + stored), unshard_);
    writer_.record_event(slots.ready, unshard_);
    if (config_.offload) writer_.release(slots.shard);
    return;
  }
  const CollectiveGroup group = communicators_.group_of(event.ranks);
  communicators_.launch(
      unshard_, tasks_.collective(Collective::all_gather, event.bytes, group), group, false);
  writer_.record_event(slots.ready, unshard_);
  // _free_low_precision_sharded_param
  for (const SlotIndex slot : {slots.cast, slots.shard}) {
    writer_.use_on_stream(slot, unshard_);
    writer_.release(slot);
  }
}

TaskIndex FsdpWriter::host_copy(TaskKind direction, Bytes bytes) {
  const std::int64_t gpus = std::max<std::int64_t>(1, plan_.cluster.gpus_per_node());
  return tasks_.copy(direction, bytes, true, gpus);
}

// _flat_param.py _free_unsharded_flat_param: record_stream on the compute stream, then freed.
void FsdpWriter::reshard(int unit) {
  if (by_parameter()) {
    reshard_parameters(unit);
    return;
  }
  UnitSlots& slots = slots_of(unit);
  if (!slots.holds_gathered) return;
  slots.holds_gathered = false;
  writer_.use_on_stream(slots.gathered, kComputeStream);
  writer_.release(slots.gathered);
  writer_.queue_event(free_events_, kComputeStream);
}

// The unit's passes of that direction, from the one that comes next. The compute stream waits for
// the unit's own gather: what is gathered ahead is issued behind that wait (_runtime_utils.py
// _pre_backward_hook).
void FsdpWriter::compute(const FsdpEvent& event) {
  // Adapters that are wrapped alone are gathered inside their block's pass.
  if (by_parameter()) copy_out(event.unit, !event.backward);
  for (const int unit : {event.unit, unit_of(event.unit).adapters}) {
    if (by_parameter() || unit < 0 || !slots_of(unit).holds_gathered) continue;
    writer_.stream_wait(kComputeStream, slots_of(unit).ready);
  }
  writer_.issue(tasks_.host("unit", tasks_.host_costs().fsdp_unit), kComputeStream);
  if (event.backward && !backward_began_) {
    backward_began_ = true;
    writer_.mark(Phase::backward);
  }
  for (; next_pass_ < graphs_.current().passes().size(); ++next_pass_) {
    const PassStep& pass = graphs_.current().passes()[next_pass_];
    const bool between = pass.pass == Pass::drop_outputs;
    if (beside_ && !ran_forward_ && !in_forward_phase(pass.pass)) {
      ran_forward_ = true;
      beside_->write_passes(PassMoment::after_forward, graphs_.current());
    }
    const bool belongs =
        in_forward_phase(pass.pass) != event.backward &&
        fsdp_.unit_of_instance[static_cast<std::size_t>(pass.instance)] == event.unit;
    if (!between && !belongs) return;
    graphs_.current().write(
        pass,
        [&](const Event& module) { visit_adapter(event.unit, pass, module); },
        [&](std::int32_t parameter, SlotIndex slot) {
          if (by_parameter()) {
            keep_gradient(parameter, slot);
            return;
          }
          const int unit = fsdp_.unit_of_parameter[static_cast<std::size_t>(parameter)];
          slots_of(unit).views.push_back(slot);
        });
    // Whose gradient of the input nobody asks for does not end before its block.
    for (Adapter& adapter : adapters_of(pass)) free_adapter(adapter);
  }
}

// The gradients of a unit's parameters become that of its flat parameter (autograd's split); an
// earlier micro-step's, not reduced yet, is added to.
// Autograd runs it on the stream on which the views were made, the gathering one.
void FsdpWriter::join_views(int index) {
  UnitSlots& slots = slots_of(index);
  if (slots.views.empty()) return;
  const Bytes bytes = unit_of(index).numel * computed_dtype(config_, unit_of(index));
  const bool adds = slots.holds_flat;
  const SlotIndex joined = adds ? writer_.new_slot() : slots.flat;
  writer_.allocate(joined, bytes, kGradients, unshard_, Purpose::unit_gradients);
  writer_.issue(tasks_.kernel("join gradients", bytes * 2), kComputeStream);
  for (const SlotIndex view : slots.views) writer_.release(view);
  slots.views.clear();
  slots.holds_flat = true;
  if (!adds) return;
  writer_.issue(tasks_.kernel("add gradients", bytes * 3), kComputeStream);
  writer_.release(joined);
}

// Where nothing is reduced the gradients of original parameters become views of their unit's. Sizes
// or dtypes that differ forbid it: each gets an empty one of its own first, of what it has of the
// rank's shard, and the view in that one's place (_flat_param.py _use_unsharded_grad_views).
void FsdpWriter::place_gradient_views(std::vector<int>& joined) {
  const bool cut = config_.sharding != Sharding::no_shard;
  for (const int index : joined) {
    const FsdpUnit& unit = unit_of(index);
    const DType stored = stored_dtype(config_, unit);
    if (config_.offload || !config_.original_parameters || !slots_of(index).holds_flat) continue;
    if (!cut && stored == computed_dtype(config_, unit)) continue;
    for (const Elements view : unit.views) {
      const SlotIndex empty = writer_.new_slot();
      writer_.allocate(empty, view * stored, kGradients, unshard_, Purpose::unit_gradients);
      writer_.release(empty);
    }
  }
  joined.clear();
}

// _runtime_utils.py _reduce_grad, _reduce_grad_no_shard; hybrid shards are summed over their
// copies.
void FsdpWriter::reduce(const FsdpEvent& event) {
  const FsdpUnit& unit = unit_of(event.unit);
  UnitSlots& slots = slots_of(event.unit);
  const bool whole = config_.sharding == Sharding::no_shard;
  const bool between_copies = event.kind == FsdpEventKind::all_reduce && !whole;
  const CollectiveGroup group = communicators_.group_of(event.ranks, between_copies);
  const DType computed = computed_dtype(config_, unit);
  if (between_copies) {
    communicators_.launch(
        reduce_, tasks_.collective(Collective::all_reduce, event.bytes, group), group, false);
    return;
  }
  if (by_parameter() && !whole) {
    reduce_parameters(event);
    return;
  }
  join_views(event.unit);
  writer_.wait_stream(reduce_, kComputeStream);
  const Bytes input = unit.padded * event.dtype;
  const bool copies = event.dtype != computed || unit.padded != unit.numel;
  if (copies) {
    writer_.allocate(slots.input, input, kCommunication, reduce_, Purpose::unit_gradients);
    writer_.issue(tasks_.kernel("pad and cast", unit.numel * computed + input), reduce_);
  }
  if (!whole) {
    writer_.allocate(
        slots.output, unit.shard * event.dtype, kCommunication, reduce_, Purpose::reduced_shard);
  }
  communicators_.launch(
      reduce_,
      tasks_.collective(whole ? Collective::all_reduce : Collective::reduce_scatter, input, group),
      group,
      false);
  if (slots.holds_flat) {
    writer_.use_on_stream(slots.flat, reduce_);
    writer_.release(slots.flat);
    slots.holds_flat = false;
  }
  if (copies) writer_.release(slots.input);
  keep_shard(event.unit);
  if (!whole) writer_.release(slots.output);
}

void FsdpWriter::keep_shard(int index) {
  const FsdpUnit& unit = unit_of(index);
  UnitSlots& slots = slots_of(index);
  const Bytes kept = unit.shard * stored_dtype(config_, unit);
  if (config_.offload) {  // _offload_grad: copied into _cpu_grad
    writer_.issue(host_copy(TaskKind::copy_to_host, kept), reduce_);
    return;
  }
  if (!slots.holds_gradient) {
    writer_.allocate(slots.gradient, kept, kGradients, reduce_, Purpose::shard_gradients);
    slots.holds_gradient = true;
  }
  writer_.issue(tasks_.kernel("keep gradient", kept * 2), reduce_);
}

// Norm, clipping and update of the shards.
void FsdpWriter::write_gpu_optimizer() {
  const Elements owned = fsdp_owned(fsdp_.units);
  const DType stored = trained_dtype(plan_.engine_parameters, config_.storage_dtype);
  const Bytes gradients = owned * stored;
  // clip_grad_norm_: the norm of the shards, summed over the ranks, and the host reads it.
  const CollectiveGroup group = communicators_.group_of(config_.shard_ranks);
  writer_.issue(tasks_.kernel("norm", gradients, 2), kComputeStream);
  communicators_.launch(
      kComputeStream, tasks_.collective(Collective::all_reduce, Bytes::of(4), group), group, false);
  writer_.issue(tasks_.kernel("scale gradient", gradients * 2), kComputeStream);
  // The multi-tensor optimizer's temporaries: one tensor a shard.
  const Bytes temporaries = fsdp_step_temporaries(config_, fsdp_.units, plan_.engine_parameters);
  const bool lists = config_.optimizer_implementation == OptimizerImplementation::foreach;
  std::vector<SlotIndex> scratch;
  if (!lists && temporaries > Bytes::zero()) {
    scratch.push_back(writer_.new_slot());
    writer_.allocate(
        scratch.back(), temporaries, kTemporaries, kComputeStream, Purpose::optimizer_temporary);
  }
  for (const FsdpUnit& unit : fsdp_.units) {
    if (!lists || temporaries == Bytes::zero()) break;
    if (!unit.trains) continue;
    for (const Elements shard : unit.owned_shards) {
      scratch.push_back(writer_.new_slot());
      writer_.allocate(scratch.back(),
                       shard * stored,
                       kTemporaries,
                       kComputeStream,
                       Purpose::optimizer_temporary);
    }
  }
  writer_.issue(
      tasks_.gpu_optimizer(owned, stored, config_.optimizer, config_.optimizer_implementation),
      kComputeStream);
  for (const SlotIndex slot : scratch) writer_.release(slot);
}

Section FsdpWriter::write_optimizer_step(bool first) {
  const std::size_t begin = writer_.position();
  writer_.set_label(-1);
  writer_.mark(Phase::step);
  if (first) allocate_buffers(BufferLifetime::first_step_on);
  if (config_.offload) {
    writer_.issue(tasks_.cpu_optimizer(fsdp_owned(fsdp_.units)), kComputeStream);
  } else {
    write_gpu_optimizer();
  }
  if (by_parameter() && !config_.gradients_held) drop_gradients();  // by zero_grad()
  // The loop reads the loss before it goes on.
  writer_.host_wait_device();
  writer_.issue(tasks_.host("step", tasks_.host_costs().step), kComputeStream);
  return writer_.since(begin);
}

}  // namespace zeroplan::simulator
