#include "simulator/engines/transient_slots.hpp"

#include <algorithm>

namespace zeroplan::simulator {

SlotIndex TransientSlots::write(const Made& made) {
  const SlotIndex slot = free_slot();
  writer_.allocate(slot, made.bytes, made.category, made.stream, made.purpose);
  tasks_.touch(made.bytes);
  writer_.issue(made.task, made.stream);
  return slot;
}

SlotIndex TransientSlots::free_slot() {
  if (free_.empty()) return writer_.new_slot();
  const SlotIndex slot = free_.back();
  free_.pop_back();
  return slot;
}

void TransientSlots::release(SlotIndex slot) {
  writer_.release(slot);
  free_.push_back(slot);
}

void TransientSlots::release(std::optional<SlotIndex>& slot) {
  if (slot) release(*slot);
  slot.reset();
}

void TransientSlots::make(const Made& made) { made_.push_back(write(made)); }

void TransientSlots::make_instead(const Made& made) {
  const SlotIndex slot = write(made);
  for (const SlotIndex before : made_) release(before);
  made_.assign(1, slot);
}

void TransientSlots::make_for_a_kernel(const Made& made) { release(write(made)); }

void TransientSlots::make_cast(const Made& made) { casts_.push_back(write(made)); }

void TransientSlots::release_casts(int count) {
  for (int i = 0; i < count && !casts_.empty(); ++i) {
    release(casts_.back());
    casts_.pop_back();
  }
}

void TransientSlots::make_partition(const Made& made) {
  release(partition_cast_);
  release(partition_);
  partition_ = write(made);
}

void TransientSlots::make_partition_cast(const Made& made) { partition_cast_ = write(made); }

void TransientSlots::release_partition_cast() { release(partition_cast_); }

void TransientSlots::make_handed(const Made& made) { handed_.push_back(write(made)); }

void TransientSlots::release_handed() {
  for (const SlotIndex slot : handed_) release(slot);
  handed_.clear();
}

void TransientSlots::make_for_a_scan(const Made& scan, Elements elements) {
  const auto make = [&](Bytes bytes) {
    const SlotIndex slot = free_slot();
    writer_.allocate(slot, bytes, scan.category, scan.stream, scan.purpose);
    return slot;
  };
  const Bytes mask = elements.times_width(1);
  const Bytes floats = elements * DType::fp32;
  std::vector<SlotIndex> held = {make(floats), make(mask)};
  const SlotIndex absolute = make(floats);
  held.push_back(make(mask));
  release(absolute);
  held.push_back(make(mask));
  held.push_back(make(floats));
  tasks_.touch(scan.bytes);
  writer_.issue(scan.task, scan.stream);
  for (; !held.empty(); held.pop_back()) release(held.back());
}

void TransientSlots::make_for_newton_schulz(const Made& made,
                                            std::span<const TensorEvent> tensors,
                                            const std::function<void()>& update) {
  std::vector<SlotIndex> held;  // by tensor, -1 for the update
  const auto stays = [&](int tensor) {
    return std::none_of(tensors.begin(), tensors.end(), [&](const TensorEvent& event) {
      return event.tensor == tensor && event.bytes == Bytes::zero();
    });
  };
  for (const TensorEvent& event : tensors) {
    if (event.bytes == Bytes::zero()) {
      release(held[static_cast<std::size_t>(event.tensor)]);
      continue;
    }
    if (stays(event.tensor)) {
      update();
      held.push_back(-1);
      continue;
    }
    held.push_back(free_slot());
    writer_.allocate(held.back(), event.bytes, made.category, made.stream, made.purpose);
    if (held.size() == 1) writer_.issue(made.task, made.stream);
  }
}

void TransientSlots::release_all() {
  release_casts(static_cast<int>(casts_.size()));
  release(partition_cast_);
  release(partition_);
  for (const SlotIndex slot : made_) release(slot);
  made_.clear();
}

}  // namespace zeroplan::simulator
