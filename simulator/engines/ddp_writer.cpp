#include "simulator/engines/ddp_writer.hpp"

#include <algorithm>

namespace zeroplan::simulator {

DdpWriter::DdpWriter(const Plan& plan, const ModelGraph& graph, const VariedGraphs& varied)
    : plan_(plan),
      config_(plan.ddp),
      model_graph_(graph),
      buffers_(ddp_buffers(plan.ddp, plan.engine_parameters)),
      writer_(rank_.program),
      tasks_(plan, writer_),
      graphs_(plan, graph, varied, writer_, tasks_),
      communicators_(plan.layout(), writer_),
      group_(communicators_.group_of(config_.ranks)),
      slots_(plan.engine_parameters.size()),
      trained_(trained_dtype(plan.engine_parameters, config_.weight_dtype)) {
  writer_.add_stream("compute");
  for (ParameterSlots& slots : slots_) {
    slots.gradient = writer_.new_slot();
    slots.cast = writer_.new_slot();
  }
}

RankProgram DdpWriter::write() {
  if (plan_.beside != nullptr) beside_.emplace(plan_, writer_, communicators_);
  write_initialisation();
  // The second step begins with new buckets (Reducer::rebuild_buckets).
  const std::size_t first_steps = std::max<std::size_t>(2, graphs_.varied_steps());
  for (std::size_t i = 0; i < first_steps; ++i) {
    rank_.first_steps.push_back(write_step(i == 0));
  }
  if (beside_) beside_->keep_asleep();
  rank_.steady = write_step(false);
  return std::move(rank_);
}

// The module moves tensor by tensor, registered buffers with their modules; then all ranks get the
// first one's, and until the first step is over all gradients share one bucket (distributed.py
// _ddp_init_helper: bucket_size_limits = [sys.maxsize]).
void DdpWriter::write_initialisation() {
  const std::size_t begin = writer_.position();
  writer_.mark(Phase::load);
  if (beside_) beside_->hold_weights();
  const std::vector<State> states = load_module();
  writer_.mark(Phase::init);
  if (config_.ranks > 1) synchronize(states);
  DdpConfig whole = config_;
  whole.first_bucket = whole.bucket = Bytes::infinite();
  std::vector<std::int32_t> backwards;
  for (std::size_t p = slots_.size(); p-- > 0;) {
    backwards.push_back(static_cast<std::int32_t>(p));
  }
  make_buckets(whole, backwards);
  rank_.initialisation = writer_.since(begin);
}

// What the module's state is broadcast in: its parameters, then its buffers.
std::vector<DdpWriter::State> DdpWriter::load_module() {
  std::vector<State> states, buffers;
  Bytes elsewhere = model_graph_.buffers;
  const auto hold = [&](State state) {
    writer_.allocate(
        writer_.new_slot(), state.bytes, kParameters, kComputeStream, Purpose::registered_buffers);
    buffers.push_back(state);
  };
  auto registered = model_graph_.registered.begin();
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    if (buffer.name != BufferName::module_parameters || buffer.place != BufferPlace::gpu) continue;
    const auto& parameter = plan_.engine_parameters[static_cast<std::size_t>(buffer.index)];
    hold_buffer(writer_, buffer, i);
    states.push_back({buffer.bytes, config_.dtype_of(parameter)});
    for (; registered != model_graph_.registered.end() && registered->behind == buffer.index;
         ++registered) {
      hold({registered->bytes, DType::fp32});
      elsewhere -= registered->bytes;
    }
  }
  if (elsewhere > Bytes::zero()) hold({elsewhere, DType::fp32});
  states.insert(states.end(), buffers.begin(), buffers.end());
  return states;
}

// Flat copies of tensors of one dtype, of 250 MiB and what goes beyond with their last tensor, in
// the order of their first ones and two at a time; a tensor that fills one alone is sent as it is
// (torch/csrc/distributed/c10d/comm.cpp broadcast_coalesced, reducer.cpp
// compute_bucket_assignment_by_size, utils/tensor_flatten.h).
void DdpWriter::synchronize(const std::vector<State>& states) {
  constexpr Bytes kPiece = Bytes::mib(250);
  constexpr std::size_t kInFlight = 2;
  struct Piece {
    DType dtype;
    Bytes bytes;
    int tensors = 0;
  };
  std::vector<Piece> pieces;
  for (const State& state : states) {
    const auto open = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& piece) {
      return piece.dtype == state.dtype && piece.bytes < kPiece;
    });
    Piece& piece = open != pieces.end() ? *open : pieces.emplace_back(Piece{state.dtype, {}, 0});
    piece.bytes += state.bytes;
    ++piece.tensors;
  }
  std::vector<SlotIndex> flying;
  for (const Piece& piece : pieces) {
    if (flying.size() == kInFlight) {
      writer_.release(flying.front());
      flying.erase(flying.begin());
    }
    flying.push_back(writer_.new_slot());
    if (piece.tensors > 1) {
      writer_.allocate(
          flying.back(), piece.bytes, kTemporaries, kComputeStream, Purpose::sent_state);
    }
    communicators_.launch(kComputeStream,
                          tasks_.collective(Collective::broadcast, piece.bytes, group_),
                          group_,
                          false);
  }
  for (const SlotIndex slot : flying) writer_.release(slot);
}

void DdpWriter::make_buckets(const DdpConfig& config,
                             std::span<const std::int32_t> gradient_order) {
  for (const Bucket& bucket : buckets_) writer_.release(bucket.slot);
  buckets_.clear();
  const MemoryCategory category =
      config_.gradient_as_bucket_view ? kGradients : MemoryCategory::communication_buffers;
  for (DdpBucket& content : ddp_buckets(config, plan_.engine_parameters, gradient_order)) {
    Bucket bucket{std::move(content), writer_.new_slot(), writer_.new_event(), 0};
    writer_.allocate(bucket.slot,
                     bucket.content.numel * trained_,
                     category,
                     kComputeStream,
                     Purpose::gradient_bucket);
    for (const int p : bucket.content.parameters) {
      slots_[static_cast<std::size_t>(p)].bucket = buckets_.size();
    }
    buckets_.push_back(std::move(bucket));
  }
}

// Gradients and buckets are followed one by one.
void DdpWriter::allocate_buffers(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    const bool followed =
        buffer.name == BufferName::module_gradients || buffer.name == BufferName::reducer_buckets;
    if (followed || buffer.lifetime != lifetime || buffer.place != BufferPlace::gpu) continue;
    hold_buffer(writer_, buffer, i);
  }
}

StepSections DdpWriter::write_step(bool first) {
  StepSections step;
  const bool rebuilds = rank_.first_steps.size() == 1;
  step.micro_steps = graphs_.write_step(
      rank_.first_steps.size(), config_.gradient_accumulation_steps, writer_, [&](int micro_step) {
        return write_micro_step(micro_step, rebuilds && micro_step == 0);
      });
  step.optimizer = write_optimizer_step(first);
  return step;
}

Section DdpWriter::write_micro_step(int micro_step, bool rebuilds) {
  const std::size_t begin = writer_.position();
  reduces_ = config_.ranks > 1 && micro_step == config_.gradient_accumulation_steps - 1;
  backward_began_ = forward_returned_ = false;
  drops_held_gradients_ = config_.gradients_held && micro_step == 0;
  writer_.set_label(-1);
  writer_.mark(Phase::forward);
  if (rebuilds) make_buckets(config_, gradient_order(model_graph_));
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.content.parameters.size();
  writer_.issue(tasks_.host("micro-step", tasks_.host_costs().micro_step), kComputeStream);
  graphs_.current().begin_micro_batch();
  if (beside_ && beside_->generates_before(micro_step)) {
    beside_->begin_step();
    beside_->write_passes(PassMoment::rollout, graphs_.current());
  }
  if (beside_) beside_->write_passes(PassMoment::before_forward, graphs_.current());
  bool ran_forward = false;
  for (const PassStep& pass : graphs_.current().passes()) {
    if (beside_ && !ran_forward && !in_forward_phase(pass.pass)) {
      ran_forward = true;
      beside_->end_forward();
      beside_->write_passes(PassMoment::after_forward, graphs_.current());
    }
    write_pass(pass);
  }
  // Autocast's copies that no backward pass has taken: of weights that are not trained.
  for (ParameterSlots& slots : slots_) drop_cast(slots);
  graphs_.current().release_loss();
  if (reduces_) finish_buckets();
  graphs_.current().release_outputs();
  graphs_.current().end_micro_batch();
  if (beside_) {
    beside_->end_backward(micro_step, micro_step + 1 == config_.gradient_accumulation_steps);
  }
  return writer_.since(begin);
}

void DdpWriter::write_pass(const PassStep& pass) {
  const bool turns = !in_forward_phase(pass.pass) && pass.pass != Pass::drop_outputs;
  if (turns && !backward_began_) {
    backward_began_ = true;
    if (!forward_returned_) drop_casts_of_checkpointed();
    if (drops_held_gradients_) drop_gradients();
    writer_.mark(Phase::backward);
  }
  cast_weights(pass);
  graphs_.current().write(
      pass,
      [this](const Event& event) {
        if (event.kind != EventKind::passes_beside || !beside_) return;
        forward_returned_ = true;
        drop_casts_of_checkpointed();
        beside_->write_passes(PassMoment::in_loss, graphs_.current());
      },
      [this](std::int32_t index, SlotIndex slot) { take_gradient(index, slot); });
  if (pass.pass == Pass::backward) {
    drop_casts(model_graph_.instances[static_cast<std::size_t>(pass.instance)]);
  }
}

// Under autocast a weight is cast where it is first used and the copy kept: by autograd until the
// weight's backward pass, and under checkpointing by the cache until autocast ends, in forward with
// the pass over the model, in recomputation with the block's.
void DdpWriter::cast_weights(const PassStep& pass) {
  if (!config_.autocasts() || pass.pass == Pass::backward || pass.pass == Pass::drop_outputs)
    return;
  const BlockInstance& instance = model_graph_.instances[static_cast<std::size_t>(pass.instance)];
  const Block& block = model_graph_.blocks[static_cast<std::size_t>(instance.block)];
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    if (!block.parameters[i].autocast) continue;
    const std::int32_t index = instance.parameters[i];
    const EngineParameter& weight = parameter(index);
    ParameterSlots& slots = slots_[static_cast<std::size_t>(index)];
    if (slots.cast_users++ > 0) continue;
    const Bytes copy = weight.numel * config_.compute_dtype;
    writer_.allocate(slots.cast, copy, kParameters, kComputeStream, Purpose::cast_weight);
    writer_.issue(tasks_.kernel("cast weight", copy + weight.numel * config_.dtype_of(weight)),
                  kComputeStream);
  }
}

void DdpWriter::drop_cast(ParameterSlots& slots) {
  if (slots.cast_users == 0) return;
  slots.cast_users = 0;
  writer_.release(slots.cast);
}

void DdpWriter::drop_casts(const BlockInstance& block) {
  if (!config_.autocasts()) return;
  for (const std::int32_t index : block.parameters) {
    ParameterSlots& slots = slots_[static_cast<std::size_t>(index)];
    if (slots.cast_users > 0 && --slots.cast_users == 0) writer_.release(slots.cast);
  }
}

// The model's forward pass is over: what checkpointed blocks used alone goes.
void DdpWriter::drop_casts_of_checkpointed() {
  for (const BlockInstance& block : model_graph_.instances) {
    if (block.checkpointed) drop_casts(block);
  }
}

// AccumulateGrad: kept as it comes, or added to what earlier micro-steps left.
void DdpWriter::take_gradient(std::int32_t index, SlotIndex slot) {
  ParameterSlots& slots = slots_[static_cast<std::size_t>(index)];
  const Bytes bytes = parameter(index).numel * config_.dtype_of(parameter(index));
  if (config_.gradient_as_bucket_view) {
    writer_.issue(tasks_.kernel("gradient to bucket", bytes * 2), kComputeStream);
    writer_.release(slot);
  } else if (slots.holds_gradient) {
    writer_.issue(tasks_.kernel("add gradient", bytes * 3), kComputeStream);
    writer_.release(slot);
  } else {
    writer_.move(slot, slots.gradient);
    slots.holds_gradient = true;
  }
  if (reduces_) fill_bucket(index);
}

// reducer.cpp mark_variable_ready_dense: divided on the way into the bucket.
void DdpWriter::fill_bucket(std::int32_t index) {
  writer_.issue(tasks_.host("gradient hook", tasks_.host_costs().gradient_hook), kComputeStream);
  if (!config_.gradient_as_bucket_view) {
    const Bytes bytes = parameter(index).numel * config_.dtype_of(parameter(index));
    writer_.issue(tasks_.kernel("gradient to bucket", bytes * 2), kComputeStream);
  }
  --buckets_[slots_[static_cast<std::size_t>(index)].bucket].missing;
  launch_full_buckets();
}

// mark_bucket_ready: in the order of the buckets.
void DdpWriter::launch_full_buckets() {
  for (; next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0; ++next_bucket_) {
    const Bucket& bucket = buckets_[next_bucket_];
    const Bytes bytes = bucket.content.numel * trained_;
    writer_.issue(tasks_.host("bucket", tasks_.host_costs().collective_call), kComputeStream);
    communicators_.launch(
        kComputeStream, tasks_.collective(Collective::all_reduce, bytes, group_), group_, true);
    writer_.record_event(bucket.reduced, communicators_.stream_of(group_));
  }
}

// finalize_backward: waits bucket by bucket and copies the sums back.
void DdpWriter::finish_buckets() {
  for (const Bucket& bucket : buckets_) {
    writer_.stream_wait(kComputeStream, bucket.reduced);
    if (config_.gradient_as_bucket_view) continue;
    const Bytes bytes = bucket.content.numel * trained_;
    writer_.issue(tasks_.kernel("bucket to gradients",
                                bytes * 2,
                                static_cast<std::int64_t>(bucket.content.parameters.size())),
                  kComputeStream);
  }
}

// Clipping by the norm of all gradients, then the update. A multi-tensor optimizer keeps the square
// roots of all tensors of a group (torch/optim/adamw.py _multi_tensor_adamw).
void DdpWriter::write_optimizer() {
  const Elements trained = ddp_trained(plan_.engine_parameters);
  const Bytes gradients = trained * trained_;
  writer_.issue(tasks_.kernel("norm", gradients, 2), kComputeStream);
  writer_.issue(tasks_.kernel("scale gradient", gradients * 2), kComputeStream);
  std::vector<SlotIndex> scratch;
  const Bytes temporaries = ddp_step_temporaries(config_, plan_.engine_parameters);
  const bool lists = config_.optimizer_implementation == OptimizerImplementation::foreach;
  if (!lists && temporaries > Bytes::zero()) {
    scratch.push_back(writer_.new_slot());
    writer_.allocate(
        scratch.back(), temporaries, kTemporaries, kComputeStream, Purpose::optimizer_temporary);
  } else if (temporaries > Bytes::zero()) {
    for (const EngineParameter& weight : plan_.engine_parameters) {
      if (!weight.trainable) continue;
      scratch.push_back(writer_.new_slot());
      writer_.allocate(scratch.back(),
                       weight.numel * config_.dtype_of(weight),
                       kTemporaries,
                       kComputeStream,
                       Purpose::optimizer_temporary);
    }
  }
  writer_.issue(
      tasks_.gpu_optimizer(trained, trained_, config_.optimizer, config_.optimizer_implementation),
      kComputeStream);
  for (const SlotIndex slot : scratch) writer_.release(slot);
}

// zero_grad(set_to_none=True)
void DdpWriter::drop_gradients() {
  for (ParameterSlots& slots : slots_) {
    if (slots.holds_gradient) writer_.release(slots.gradient);
    slots.holds_gradient = false;
  }
}

Section DdpWriter::write_optimizer_step(bool first) {
  const std::size_t begin = writer_.position();
  writer_.set_label(-1);
  writer_.mark(Phase::step);
  if (first) allocate_buffers(BufferLifetime::first_step_on);
  write_optimizer();
  if (!config_.gradients_held) drop_gradients();
  if (beside_) beside_->end_step();
  // The loop reads the loss before it goes on.
  writer_.host_wait_device();
  writer_.issue(tasks_.host("step", tasks_.host_costs().step), kComputeStream);
  return writer_.since(begin);
}

}  // namespace zeroplan::simulator
