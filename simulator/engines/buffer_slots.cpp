#include "simulator/engines/buffer_slots.hpp"

#include <algorithm>

namespace zeroplan::simulator {
namespace {

// Buffers by when a backward pass of a window makes them.
constexpr BufferLifetime kAnyBackward[] = {BufferLifetime::backward};
constexpr BufferLifetime kFirstBackward[] = {BufferLifetime::window,
                                             BufferLifetime::window_to_step};
constexpr BufferLifetime kBoundaryBackward[] = {BufferLifetime::boundary_backward,
                                                BufferLifetime::boundary_to_step};

constexpr BufferLifetime kConsumedByStep[] = {BufferLifetime::window_to_step,
                                              BufferLifetime::boundary_to_step,
                                              BufferLifetime::after_boundary};

}  // namespace

void hold_buffer(ProgramWriter& writer, const EngineBuffer& buffer, std::size_t index) {
  const SlotIndex slot =
      writer.new_slots(SlotKind::engine_buffer, 1, static_cast<std::int32_t>(index));
  writer.allocate(slot, buffer.bytes, buffer.category, kComputeStream);
}

BufferSlots::BufferSlots(const EngineConfig& config,
                         std::span<const EngineParameter> parameters,
                         ProgramWriter& writer,
                         TaskTable& tasks,
                         StreamId reduce)
    : config_(config),
      writer_(writer),
      tasks_(tasks),
      reduce_(reduce),
      buffers_(engine_buffers(config, parameters)),
      handed_(handed_buffers(buffers_)),
      held_(buffers_.size(), false) {
  for (const EngineParameter& parameter : parameters) elements_ += parameter.numel;
  first_slot_ =
      writer_.new_slots(SlotKind::engine_buffer, static_cast<std::int32_t>(buffers_.size()));
  keeps_gradients_ = std::any_of(buffers_.begin(), buffers_.end(), is_kept_gradient);
}

bool BufferSlots::is_followed(const EngineBuffer& buffer) const {
  return is_waiting_gradient(buffer) || is_outside_bucket(buffer) || is_kept_gradient(buffer) ||
         (config_.stage == 3 && buffer.name == BufferName::persistent_parameters) ||
         buffer.name == BufferName::ds_secondary_tensor;
}

bool BufferSlots::is_open(std::size_t buffer, int group) const {
  const EngineBuffer& what = buffers_[buffer];
  return what.place == BufferPlace::gpu && what.lifetime == BufferLifetime::resident &&
         !held_[buffer] && !is_followed(what) && (group < 0 || what.index == group);
}

// What a flush makes comes on its stream (stage_1_and_2.py reduce_ipg_grads).
void BufferSlots::allocate(std::size_t buffer) {
  const EngineBuffer& what = buffers_[buffer];
  const StreamId stream = what.made_by_flush ? reduce_ : kComputeStream;
  writer_.allocate(first_slot_ + static_cast<SlotIndex>(buffer), what.bytes, what.category, stream);
  // A bucket is larger than what goes into it where the model is small; the rest of its pages are
  // never touched.
  const bool bucket = what.category == MemoryCategory::communication_buffers;
  tasks_.touch(bucket ? std::min(what.bytes, elements_ * what.dtype) : what.bytes);
  held_[buffer] = true;
}

void BufferSlots::allocate(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    if (buffer.place != BufferPlace::gpu || buffer.lifetime != lifetime || held_[i]) continue;
    if (buffer.made_by_flush && !owned_ready_) continue;
    if (!is_followed(buffer)) allocate(i);
  }
}

void BufferSlots::release(BufferLifetime lifetime) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].lifetime != lifetime || !held_[i]) continue;
    writer_.release(first_slot_ + static_cast<SlotIndex>(i));
    held_[i] = false;
  }
}

void BufferSlots::begin_micro_step(int micro_step) {
  micro_step_ = micro_step;
  backward_ready_ = false;
  owned_ready_ = false;
  next_update_ = 0;
}

void BufferSlots::make_buckets() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (is_reduce_bucket(buffers_[i]) && !held_[i]) allocate(i);
  }
}

void BufferSlots::begin_backward() {
  if (backward_ready_) return;
  backward_ready_ = true;
  allocate_of_backward();
}

void BufferSlots::make_owned() {
  if (owned_ready_) return;
  owned_ready_ = true;
  allocate_of_backward();
}

void BufferSlots::make_momentum() { allocate(BufferLifetime::first_boundary_on); }

void BufferSlots::make_update() {
  for (; next_update_ < buffers_.size(); ++next_update_) {
    if (buffers_[next_update_].lifetime != BufferLifetime::updates_to_step) continue;
    allocate(next_update_++);
    return;
  }
}

// stage_1_and_2.py step: averaged_gradients[i] = None.
void BufferSlots::release_updates(int group) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const bool its =
        buffers_[i].lifetime == BufferLifetime::updates_to_step && buffers_[i].index == group;
    if (!its || !held_[i]) continue;
    writer_.release(first_slot_ + static_cast<SlotIndex>(i));
    held_[i] = false;
  }
}

// Those that are there already stay.
void BufferSlots::allocate_of_backward() {
  const bool boundary = micro_step_ == config_.gradient_accumulation_steps - 1;
  allocate(BufferLifetime::first_backward_on);
  for (const BufferLifetime lifetime : kFirstBackward) allocate(lifetime);
  for (const BufferLifetime lifetime : kAnyBackward) allocate(lifetime);
  if (micro_step_ > 0) allocate(BufferLifetime::later_backward);
  if (!boundary) return;
  for (const BufferLifetime lifetime : kBoundaryBackward) allocate(lifetime);
}

void BufferSlots::end_backward() {
  for (const BufferLifetime lifetime : kAnyBackward) release(lifetime);
  release(BufferLifetime::later_backward);
  if (micro_step_ != config_.gradient_accumulation_steps - 1) return;
  release(BufferLifetime::boundary_backward);
  hand_over();
  release(BufferLifetime::window);
  allocate(BufferLifetime::after_boundary);
}

// What the window's micro-steps have summed up is what the step reads.
void BufferSlots::hand_over() {
  for (const HandedBuffer& handed : handed_) {
    if (!held_[handed.window] || held_[handed.kept]) continue;
    writer_.move(first_slot_ + static_cast<SlotIndex>(handed.window),
                 first_slot_ + static_cast<SlotIndex>(handed.kept));
    held_[handed.window] = false;
    held_[handed.kept] = true;
  }
}

void BufferSlots::begin_step(bool first) {
  release(BufferLifetime::between_steps);
  allocate(BufferLifetime::step);
  makes_states_ = first;
}

void BufferSlots::begin_group(int group) {
  release_updates(group);
  if (!makes_states_) return;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    const EngineBuffer& buffer = buffers_[i];
    const bool its = buffer.index < 0 || buffer.index == group;
    if (buffer.lifetime == BufferLifetime::first_step_on && its &&
        buffer.place == BufferPlace::gpu && !held_[i]) {
      allocate(i);
    }
  }
}

void BufferSlots::end_groups() {
  if (makes_states_) allocate(BufferLifetime::first_step_on);
  makes_states_ = false;
}

void BufferSlots::release_consumed() {
  for (const BufferLifetime lifetime : kConsumedByStep) release(lifetime);
}

}  // namespace zeroplan::simulator
