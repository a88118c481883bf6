#include "simulator/program_writer.hpp"

#include <unordered_map>
#include <utility>

#include "base/check.hpp"
#include "base/fingerprint.hpp"

namespace zeroplan::simulator {

namespace {

bool takes_slot(Opcode opcode) { return opcode == Opcode::allocate || opcode == Opcode::release; }

}  // namespace

Fragment::Fragment(std::vector<Instruction> code) : code_(std::move(code)) {
  std::unordered_map<std::int32_t, Change> changes;
  for (const Instruction& instruction : code_) {
    const bool makes = instruction.opcode == Opcode::allocate;
    if (!takes_slot(instruction.opcode)) continue;
    const auto [known, is_first] = changes.try_emplace(instruction.index);
    if (is_first) slots_.push_back(instruction.index);
    if (makes && instruction.bytes == 0) continue;  // holds nothing
    Change& change = known->second;
    if (change.slot < 0) change = {instruction.index, makes};
    change.holds = makes;
  }
  for (const std::int32_t slot : slots_) {
    const Change& change = changes.at(slot);
    const bool passes_by = change.makes_first && !change.holds;
    if (change.slot >= 0 && !passes_by) changes_.push_back(change);
  }
}

StreamId ProgramWriter::add_stream(std::string_view name) {
  ZP_CHECK(program_.streams.size() < kMostStreams, "too many streams");
  program_.streams.emplace_back(name);
  return static_cast<StreamId>(program_.streams.size()) - 1;
}

TaskIndex ProgramWriter::add_task(Task task) {
  program_.tasks.push_back(std::move(task));
  return static_cast<TaskIndex>(program_.tasks.size()) - 1;
}

std::int32_t ProgramWriter::add_label(std::string label) {
  ZP_CHECK(program_.labels.size() < kMostLabels, "too many labels");
  program_.labels.push_back(std::move(label));
  return static_cast<std::int32_t>(program_.labels.size()) - 1;
}

SlotIndex ProgramWriter::new_slots(std::int32_t count) {
  const SlotIndex first = program_.slots;
  program_.slots += count;
  return first;
}

SlotIndex ProgramWriter::new_slots(SlotKind kind, std::int32_t count, std::int32_t index) {
  const SlotIndex first = new_slots(count);
  program_.slot_ranges.push_back({kind, first, count, index});
  return first;
}

void ProgramWriter::allocate(
    SlotIndex slot, Bytes bytes, MemoryCategory category, StreamId stream, Purpose purpose) {
  Instruction& instruction = add(Opcode::allocate, stream, slot);
  instruction.purpose = purpose;
  instruction.bytes = bytes.count();
  instruction.category = category;
  if (bytes == Bytes::zero()) return;  // holds nothing
  ZP_CHECK(!is_held(slot), "a slot is allocated twice");
  set_held(slot, true);
}

void ProgramWriter::release(SlotIndex slot) {
  add(Opcode::release, kComputeStream, slot);
  if (is_held(slot)) set_held(slot, false);
}

void ProgramWriter::move(SlotIndex from, SlotIndex to) {
  add(Opcode::move, kComputeStream, from).bytes = to;
  ZP_CHECK(!is_held(to), "a slot is moved onto one that holds a tensor");
  if (!is_held(from)) return;
  set_held(from, false);
  set_held(to, true);
}

void ProgramWriter::set_held(SlotIndex slot, bool holds) {
  const auto at = static_cast<std::size_t>(slot);
  if (at >= holds_.size()) holds_.resize(static_cast<std::size_t>(program_.slots), false);
  holds_[at] = holds;
  Fingerprint one;
  one.add(at);
  held_ ^= one.low;
}

void ProgramWriter::write(const Fragment& fragment, std::span<const SlotIndex> slots) {
  const std::size_t begin = position();
  program_.code.insert(program_.code.end(), fragment.code().begin(), fragment.code().end());
  for (Instruction& instruction : std::span(program_.code).subspan(begin)) {
    instruction.label = label_;
    if (!takes_slot(instruction.opcode)) continue;
    instruction.index = slots[static_cast<std::size_t>(instruction.index)];
  }
  for (const Fragment::Change& change : fragment.changes()) {
    const SlotIndex slot = slots[static_cast<std::size_t>(change.slot)];
    ZP_CHECK(!change.makes_first || !is_held(slot), "a slot is allocated twice");
    if (is_held(slot) != change.holds) set_held(slot, change.holds);
  }
}

Fragment ProgramWriter::fragment_since(std::size_t position,
                                       std::span<const std::int32_t> numbers) const {
  std::vector<Instruction> code(program_.code.begin() + static_cast<std::ptrdiff_t>(position),
                                program_.code.end());
  auto number = numbers.begin();
  for (Instruction& instruction : code) {
    if (takes_slot(instruction.opcode)) instruction.index = *number++;
  }
  ZP_CHECK(number == numbers.end(), "another number of slots");
  return Fragment(std::move(code));
}

void ProgramWriter::throttle(QueueIndex queue, std::int64_t limit) {
  add(Opcode::throttle, kComputeStream, queue).bytes = limit;
}

}  // namespace zeroplan::simulator
