#include "simulator/engines/gradient_slots.hpp"

namespace zeroplan::simulator {

GradientSlots::GradientSlots(const EngineConfig& config,
                             std::size_t parameters,
                             ProgramWriter& writer,
                             TaskTable& tasks,
                             StreamId reduce)
    : config_(config),
      writer_(writer),
      tasks_(tasks),
      reduce_(reduce),
      first_waiting_(
          writer.new_slots(SlotKind::waiting_gradient, static_cast<std::int32_t>(parameters))),
      waits_(parameters, false),
      slots_(parameters, -1) {}

void GradientSlots::take(std::int32_t parameter, SlotIndex slot) {
  slots_[static_cast<std::size_t>(parameter)] = slot;
}

void GradientSlots::accumulate(const EngineAction& action) {
  const auto p = static_cast<std::size_t>(action.parameter);
  const bool waited = waits_[p];
  waits_[p] = true;
  if (!waited && action.dtype == config_.model_dtype) {
    writer_.move(slots_[p], waiting_slot(p));
    return;
  }
  if (!waited) {
    writer_.allocate(
        waiting_slot(p), action.elements * action.dtype, MemoryCategory::gradients, kComputeStream);
  }
  tasks_.issue_action(config_, action, kComputeStream);
  writer_.release(slots_[p]);
}

// What waited, or what autograd has just made.
void GradientSlots::join_bucket(const EngineAction& action, StreamId stream) {
  tasks_.issue_action(config_, action, stream);
  if (action.keeps_source) return;
  const auto p = static_cast<std::size_t>(action.parameter);
  const SlotIndex slot = waits_[p] ? waiting_slot(p) : slots_[p];
  waits_[p] = false;
  if (action.kind != ActionKind::insert_gradient) {
    slots_[p] = slot;
    return;
  }
  if (stream != kComputeStream) writer_.use_on_stream(slot, stream);
  writer_.release(slot);
}

void GradientSlots::drop(std::span<const int> parameters) {
  for (const int parameter : parameters) {
    const SlotIndex slot = slots_[static_cast<std::size_t>(parameter)];
    if (reduce_ != kComputeStream) writer_.use_on_stream(slot, reduce_);
    writer_.release(slot);
  }
}

void GradientSlots::release_waiting() {
  for (std::size_t p = 0; p < waits_.size(); ++p) {
    if (waits_[p]) writer_.release(waiting_slot(p));
    waits_[p] = false;
  }
}

}  // namespace zeroplan::simulator
