#include "simulator/memory_snapshot.hpp"

#include <string_view>

#include "simulator/pickle.hpp"

namespace zeroplan::simulator {
namespace {

std::string_view action_name(AllocatorAction action) {
  switch (action) {
    case AllocatorAction::alloc:
      return "alloc";
    case AllocatorAction::free_requested:
      return "free_requested";
    case AllocatorAction::free_completed:
      return "free_completed";
    case AllocatorAction::segment_alloc:
      return "segment_alloc";
    case AllocatorAction::segment_free:
      return "segment_free";
    case AllocatorAction::segment_map:
      return "segment_map";
    case AllocatorAction::segment_unmap:
      return "segment_unmap";
    case AllocatorAction::oom:
      return "oom";
  }
  return "snapshot";
}

std::string_view state_name(BlockState state) {
  switch (state) {
    case BlockState::allocated:
      return "active_allocated";
    case BlockState::awaiting_events:
      return "active_pending_free";
    case BlockState::free:
      break;
  }
  return "inactive";
}

// One frame: what made the tensor.
void write_frames(const Program& program, std::uint64_t tag, bool named, PickleWriter& out) {
  out.text("frames");
  out.begin_list();
  if (named && tag < program.code.size()) {
    const Instruction& instruction = program.code[static_cast<std::size_t>(tag)];
    out.begin_dict();
    out.entry("name", name(instruction.category));
    out.entry("filename",
              instruction.label < 0
                  ? std::string_view("engine")
                  : std::string_view(program.labels[static_cast<std::size_t>(instruction.label)]));
    out.entry("line", 0);
    out.end_dict();
  }
  out.end_list();
}

bool is_tensor(AllocatorAction action) {
  return action == AllocatorAction::alloc || action == AllocatorAction::free_requested ||
         action == AllocatorAction::free_completed;
}

void write_event(const Program& program, const AllocatorEvent& event, PickleWriter& out) {
  out.begin_dict();
  out.entry("action", action_name(event.action));
  out.entry(event.action == AllocatorAction::oom ? "device_free" : "addr", event.address);
  out.entry("size", event.size.count());
  out.entry("stream", event.stream);
  write_frames(program, event.tag, is_tensor(event.action), out);
  out.end_dict();
}

void write_segment(const Program& program, const SegmentSnapshot& segment, PickleWriter& out) {
  Bytes allocated;
  Bytes active;
  Bytes requested;
  for (const BlockSnapshot& block : segment.blocks) {
    if (block.state == BlockState::allocated) allocated += block.size;
    if (block.state == BlockState::allocated || block.state == BlockState::awaiting_events) {
      active += block.size;
    }
    requested += block.requested;
  }
  out.begin_dict();
  out.entry("device", 0);
  out.entry("address", segment.address);
  out.entry("total_size", segment.total_size.count());
  out.entry("allocated_size", allocated.count());
  out.entry("active_size", active.count());
  out.entry("requested_size", requested.count());
  out.entry("stream", segment.stream);
  out.entry("segment_type", segment.is_large ? "large" : "small");
  out.text("is_expandable");
  out.boolean(segment.is_expandable);
  out.text("blocks");
  out.begin_list();
  for (const BlockSnapshot& block : segment.blocks) {
    out.begin_dict();
    out.entry("address", block.address);
    out.entry("size", block.size.count());
    out.entry("requested_size", block.requested.count());
    out.entry("state", state_name(block.state));
    write_frames(program, block.tag, block.state == BlockState::allocated, out);
    out.end_dict();
  }
  out.end_list();
  out.end_dict();
}

}  // namespace

std::string memory_snapshot(const Program& program,
                            const std::vector<AllocatorEvent>& events,
                            const std::vector<SegmentSnapshot>& segments) {
  PickleWriter out;
  out.begin_dict();
  out.text("segments");
  out.begin_list();
  for (const SegmentSnapshot& segment : segments) write_segment(program, segment, out);
  out.end_list();
  out.text("device_traces");
  out.begin_list();
  out.begin_list();
  for (const AllocatorEvent& event : events) write_event(program, event, out);
  out.end_list();
  out.end_list();
  out.end_dict();
  return out.finish();
}

}  // namespace zeroplan::simulator
