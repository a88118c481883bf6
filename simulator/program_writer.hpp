// Appends instructions to a Program: one short call an instruction, tasks interned once. A slot
// that holds a tensor is not allocated again, nor moved onto: ZP_CHECK.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "simulator/program.hpp"

namespace zeroplan::simulator {

// Instructions that are written again and again, each time for other slots: those of allocate and
// release are numbers of a table that is given with it. No `move`, and labels do not count.
class Fragment {
 public:
  explicit Fragment(std::vector<Instruction> code);

  const std::vector<Instruction>& code() const { return code_; }
  // The numbers that it has, each once.
  const std::vector<std::int32_t>& slots() const { return slots_; }
  // A change is a slot that the fragment leaves otherwise than it found it, or that held a tensor
  // before; tensors that it allocates and releases itself are none.
  struct Change {
    std::int32_t slot = -1;
    bool makes_first = false;  // so that the slot must hold nothing before
    bool holds = false;        // in the end
  };
  const std::vector<Change>& changes() const { return changes_; }

 private:
  std::vector<Instruction> code_;
  std::vector<std::int32_t> slots_;
  std::vector<Change> changes_;
};

class ProgramWriter {
 public:
  explicit ProgramWriter(Program& program) : program_(program) {}

  StreamId add_stream(std::string_view name);
  TaskIndex add_task(Task task);
  std::int32_t add_label(std::string label);
  SlotIndex new_slot() { return program_.slots++; }
  // `count` slots in a row; the first.
  SlotIndex new_slots(std::int32_t count);
  // The same, with what they are for.
  SlotIndex new_slots(SlotKind kind, std::int32_t count, std::int32_t index = 0);
  EventIndex new_event() { return program_.events++; }
  QueueIndex new_queue() { return program_.queues++; }

  // What is issued from now on belongs to it.
  void set_label(std::int32_t label) { label_ = label; }

  void issue(TaskIndex task, StreamId stream) { add(Opcode::issue, stream, task); }
  void allocate(SlotIndex slot,
                Bytes bytes,
                MemoryCategory category,
                StreamId stream,
                Purpose purpose = Purpose::of_slot);
  void release(SlotIndex slot);
  void move(SlotIndex from, SlotIndex to);
  void use_on_stream(SlotIndex slot, StreamId stream) { add(Opcode::use_on_stream, stream, slot); }
  void empty_cache() { add(Opcode::empty_cache, kComputeStream, 0); }
  void record_event(EventIndex event, StreamId stream) { add(Opcode::record_event, stream, event); }
  void stream_wait(StreamId stream, EventIndex event) { add(Opcode::stream_wait, stream, event); }
  void host_wait(EventIndex event) { add(Opcode::host_wait, kComputeStream, event); }
  void host_wait_stream(StreamId stream) { add(Opcode::host_wait_stream, stream, 0); }
  void host_wait_device() { add(Opcode::host_wait_device, kComputeStream, 0); }
  void queue_event(QueueIndex queue, StreamId stream) { add(Opcode::queue_event, stream, queue); }
  void throttle(QueueIndex queue, std::int64_t limit);
  void mark(Phase phase) { add(Opcode::mark, kComputeStream, static_cast<std::int32_t>(phase)); }

  // The fragment of all instructions since `position`; `numbers` has one for each allocate and
  // release, in their order.
  Fragment fragment_since(std::size_t position, std::span<const std::int32_t> numbers) const;
  // Upon the slots of the table. Tensors that it makes and lets go of are not checked.
  void write(const Fragment& fragment, std::span<const SlotIndex> slots);

  // Stream.wait_stream of torch. Nothing where both are the same.
  void wait_stream(StreamId stream, StreamId other) {
    if (stream != other) add(Opcode::wait_stream, stream, other);
  }

  std::size_t position() const { return program_.code.size(); }
  Section since(std::size_t begin) const { return {begin, position()}; }
  Program& program() { return program_; }
  const Program& program() const { return program_; }
  // Stands for the set of slots that hold a tensor after what was written so far.
  std::uint64_t held() const { return held_; }

 private:
  Instruction& add(Opcode opcode, StreamId stream, std::int32_t index) {
    Instruction instruction;
    instruction.opcode = opcode;
    instruction.stream = static_cast<std::uint8_t>(stream);
    instruction.index = index;
    instruction.label = label_;
    program_.code.push_back(instruction);
    return program_.code.back();
  }

  bool is_held(SlotIndex slot) const {
    return static_cast<std::size_t>(slot) < holds_.size() && holds_[static_cast<std::size_t>(slot)];
  }
  void set_held(SlotIndex slot, bool holds);

  Program& program_;
  std::int32_t label_ = -1;
  std::vector<bool> holds_;  // by slot
  std::uint64_t held_ = 0;
};

}  // namespace zeroplan::simulator
