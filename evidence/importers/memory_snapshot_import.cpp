#include "evidence/importers/memory_snapshot_import.hpp"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "evidence/recorded_memory.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::string_view kSnapshot = "the memory snapshot";
constexpr double kUnsplit = 1024.0 * 1024.0;  // a block may keep as much beyond what was asked
constexpr SeriesInfo kSnapshotAllocated{
    Metric::peak_allocated_bytes, kSnapshot, 1, kUnsplit, false, "GPU"};
constexpr SeriesInfo kSnapshotReserved{
    Metric::peak_reserved_bytes, kSnapshot, 1, 0.0, false, "GPU"};

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

// What a device holds at one moment.
struct Held {
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
  std::unordered_map<std::int64_t, std::int64_t> blocks;  // sizes of what is allocated, by address
};

// A sum of sizes that stays below 2^62 whatever the file says.
void add(std::int64_t& sum, std::int64_t size) { sum = std::min(sum + size, kMostBytes); }

Held held_at_the_end(const RecordedDevice& device) {
  Held held;
  for (const RecordedSegment& segment : device.segments) {
    add(held.reserved, segment.size);
    for (const RecordedBlock& block : segment.blocks) {
      if (block.state != simulator::BlockState::allocated) continue;
      add(held.allocated, block.size);
      held.blocks[block.address] = block.size;
    }
  }
  return held;
}

struct Walk {
  std::int64_t peak_allocated = 0, peak_reserved = 0;
  std::int64_t begin_allocated = 0, begin_reserved = 0;
  bool out_of_memory = false;
};

std::int64_t rounded(std::int64_t size) {
  constexpr std::int64_t kBlock = 512;
  return round_up(size, kBlock);
}

// A block may be larger than what was asked of it: its own size counts where it is still there.
Walk walk_back(const std::vector<RecordedEvent>& history, Held now) {
  Walk walk{now.allocated, now.reserved, 0, 0, false};
  for (std::size_t i = history.size(); i-- > 0;) {
    const RecordedEvent& event = history[i];
    switch (event.action) {
      case simulator::AllocatorAction::alloc: {
        const auto block = now.blocks.extract(event.address);
        const std::int64_t held = block.empty() ? rounded(event.size) : block.mapped();
        now.allocated = std::max<std::int64_t>(0, now.allocated - held);
        break;
      }
      case simulator::AllocatorAction::free_requested:
        add(now.allocated, rounded(event.size));
        now.blocks[event.address] = rounded(event.size);
        break;
      case simulator::AllocatorAction::free_completed:
        break;
      case simulator::AllocatorAction::segment_alloc:
      case simulator::AllocatorAction::segment_map:
        now.reserved = std::max<std::int64_t>(0, now.reserved - event.size);
        break;
      case simulator::AllocatorAction::segment_free:
      case simulator::AllocatorAction::segment_unmap:
        add(now.reserved, event.size);
        break;
      case simulator::AllocatorAction::oom:
        walk.out_of_memory = true;
        break;
    }
    walk.peak_allocated = std::max(walk.peak_allocated, now.allocated);
    walk.peak_reserved = std::max(walk.peak_reserved, now.reserved);
  }
  walk.begin_allocated = now.allocated;
  walk.begin_reserved = now.reserved;
  return walk;
}

void add_device(int device, const Walk& walk, std::size_t events, RunFindings& findings) {
  const LogPlace place{device, 0};
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  findings.sample(kSnapshotAllocated, static_cast<double>(walk.peak_allocated), place);
  findings.sample(kSnapshotReserved, static_cast<double>(walk.peak_reserved), place);
  if (walk.out_of_memory) {
    findings.fits = false;
    findings.note(fmt::format("device {} ran out of memory in the time of the snapshot", device));
  }
  const std::string begin =
      walk.begin_reserved == 0
          ? "from the first allocation on"
          : fmt::format("which begins with {:.2f} GiB allocated; the peak before is not in it",
                        static_cast<double>(walk.begin_allocated) / kGib);
  findings.note(fmt::format("device {}: {} events of history, {}", device, events, begin));
}

}  // namespace

void read_memory_snapshot(std::string_view bytes, RunFindings& findings) {
  const RecordedMemory memory = read_recorded_memory(bytes, findings.file());
  bool any = false;
  for (const RecordedDevice& device : memory.devices) {
    if (device.history.empty()) continue;
    any = true;
    const Walk walk = walk_back(device.history, held_at_the_end(device));
    add_device(static_cast<int>(device.device), walk, device.history.size(), findings);
  }
  if (!any) {
    findings.note(
        "the snapshot has no history, so no peak: call "
        "torch.cuda.memory._record_memory_history() before training");
  }
}

}  // namespace zeroplan::evidence
