#include "evidence/allocator_replay.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "model/software.hpp"

namespace zeroplan::evidence {
namespace {

// Releases that write their settings into a snapshot are newer than any option that is read.
constexpr Version kNewestTorch{2, 99, 0};

bool takes(const RecordedEvent& event) {
  return event.action == simulator::AllocatorAction::segment_alloc;
}
bool gives_back(const RecordedEvent& event) {
  return event.action == simulator::AllocatorAction::segment_free;
}
bool expands(const RecordedEvent& event) {
  return event.action == simulator::AllocatorAction::segment_map ||
         event.action == simulator::AllocatorAction::segment_unmap;
}

[[noreturn]] void refuse(const std::string& file, const std::string& got, const std::string& hint) {
  throw InputError({file, "", "a memory snapshot with the whole history", got, hint});
}

// The history explains all that is reserved at the end.
void require_whole(const RecordedDevice& device, const std::string& file) {
  if (std::any_of(device.history.begin(), device.history.end(), expands)) {
    refuse(file, "segments that expand", "record without expandable_segments");
  }
  std::int64_t reserved = 0;
  for (const RecordedSegment& segment : device.segments) reserved += segment.size;
  for (const RecordedEvent& event : device.history) {
    if (takes(event)) reserved -= event.size;
    if (gives_back(event)) reserved += event.size;
  }
  if (reserved == 0) return;
  refuse(
      file,
      fmt::format("a history of device {} that does not explain {} bytes", device.device, reserved),
      "call torch.cuda.memory._record_memory_history() before the first allocation, with "
      "max_entries that suffice");
}

class HistoryPlayer {
 public:
  HistoryPlayer(const RecordedDevice& device, const simulator::AllocatorOptions& options)
      : device_(device), allocator_(options) {
    result_.device = device.device;
    result_.oldest_segment_first = options.oldest_segment_first;
  }

  AllocatorReplay play() {
    for (at_ = 0; at_ < device_.history.size() && result_.difference.empty(); ++at_) {
      play(device_.history[at_]);
    }
    if (result_.difference.empty()) compare_end();
    return result_;
  }

 private:
  void play(const RecordedEvent& event) {
    switch (event.action) {
      case simulator::AllocatorAction::segment_alloc:
        if (!has_room_for(event)) return differ("memory that is not taken", "a segment in another");
        segments_[event.address] = event.size;
        reserved_ += event.size;
        result_.peak_reserved = std::max(result_.peak_reserved, Bytes::of(reserved_));
        result_.reserved = Bytes::of(reserved_);
        ++result_.segments;
        allocator_.place_next_segment(event.address);
        break;
      case simulator::AllocatorAction::segment_free:
        give_back(event);
        break;
      case simulator::AllocatorAction::alloc:
        allocate(event);
        break;
      case simulator::AllocatorAction::free_completed:
        free(event);
        break;
      case simulator::AllocatorAction::free_requested:
      case simulator::AllocatorAction::segment_map:
      case simulator::AllocatorAction::segment_unmap:
      case simulator::AllocatorAction::oom:
        break;
    }
  }

  void allocate(const RecordedEvent& event) {
    const auto stream = streams_.try_emplace(event.stream, streams_.size()).first->second;
    if (stream >= simulator::kMaxStreams) return differ("one of 64 streams", "one more");
    ++result_.allocations;
    const simulator::Allocation got = allocator_.allocate(
        {.size = Bytes::of(event.size), .stream = static_cast<simulator::StreamId>(stream)}, {});
    if (got.outcome != simulator::AllocationOutcome::allocated) return differ("a block", "none");
    const std::int64_t reserved = allocator_.stats().reserved().count();
    if (reserved != reserved_) {
      return differ(fmt::format("{} bytes reserved", reserved_), fmt::format("{}", reserved));
    }
    if (got.block != simulator::kNoBlock && allocator_.address(got.block) != event.address) {
      return differ(fmt::format("the block at {:#x}", event.address),
                    fmt::format("that at {:#x}", allocator_.address(got.block)));
    }
    live_[event.address] = got.block;
  }

  void free(const RecordedEvent& event) {
    const auto block = live_.find(event.address);
    if (block == live_.end()) {
      return differ("a free of what is allocated", fmt::format("one at {:#x}", event.address));
    }
    if (block->second != simulator::kNoBlock) allocator_.free(block->second, {});
    live_.erase(block);
  }

  // All that nobody uses is given back at once, and recorded segment by segment.
  void give_back(const RecordedEvent& event) {
    const auto segment = segments_.find(event.address);
    if (segment == segments_.end() || segment->second != event.size) {
      return differ("the end of a segment", fmt::format("one at {:#x}", event.address));
    }
    segments_.erase(segment);
    reserved_ -= event.size;
    result_.reserved = Bytes::of(reserved_);
    const bool first = at_ == 0 || !gives_back(device_.history[at_ - 1]);
    if (first) allocator_.empty_cache({});
    const bool last = at_ + 1 == device_.history.size() || !gives_back(device_.history[at_ + 1]);
    const std::int64_t reserved = allocator_.stats().reserved().count();
    if (last && reserved != reserved_) {
      differ(fmt::format("{} bytes reserved", reserved_), fmt::format("{}", reserved));
    }
  }

  bool has_room_for(const RecordedEvent& event) const {
    const auto next = segments_.lower_bound(event.address);
    if (next != segments_.end() && next->first < event.address + event.size) return false;
    return next == segments_.begin() ||
           std::prev(next)->first + std::prev(next)->second <= event.address;
  }

  void compare_end() {
    std::map<std::int64_t, std::vector<RecordedBlock>> recorded;
    for (const RecordedSegment& segment : device_.segments) {
      recorded[segment.address] = segment.blocks;
    }
    std::map<std::int64_t, std::vector<RecordedBlock>> played;
    for (const simulator::SegmentSnapshot& segment : allocator_.snapshot()) {
      std::vector<RecordedBlock>& blocks = played[segment.address];
      for (const simulator::BlockSnapshot& block : segment.blocks) {
        blocks.push_back({block.address, block.size.count(), block.state});
      }
    }
    for (const auto& [address, blocks] : recorded) {
      const auto found = played.find(address);
      if (found == played.end() || !equal(blocks, found->second)) {
        return differ(fmt::format("the segment at {:#x} with {} blocks", address, blocks.size()),
                      "other blocks");
      }
    }
    if (played.size() != recorded.size()) {
      differ(fmt::format("{} segments", recorded.size()), fmt::format("{}", played.size()));
    }
  }

  static bool equal(const std::vector<RecordedBlock>& recorded,
                    const std::vector<RecordedBlock>& played) {
    return std::equal(recorded.begin(),
                      recorded.end(),
                      played.begin(),
                      played.end(),
                      [](const RecordedBlock& a, const RecordedBlock& b) {
                        const bool both_free = (a.state == simulator::BlockState::free) ==
                                               (b.state == simulator::BlockState::free);
                        return a.address == b.address && a.size == b.size && both_free;
                      });
  }

  void differ(const std::string& expected, const std::string& got) {
    const std::string where =
        at_ < device_.history.size()
            ? fmt::format("event {} ({} bytes)", at_, device_.history[at_].size)
            : "the end";
    result_.difference = fmt::format("{}: expected {}, got {}", where, expected, got);
  }

  const RecordedDevice& device_;
  simulator::CachingAllocator allocator_;
  AllocatorReplay result_;
  std::size_t at_ = 0;
  std::int64_t reserved_ = 0;                      // as recorded
  std::map<std::int64_t, std::int64_t> segments_;  // sizes of those that are held, by address
  std::unordered_map<std::int64_t, simulator::BlockId> live_;  // by address
  std::unordered_map<std::int64_t, std::size_t> streams_;
};

// In the order of either torch: that which explains more of the history, the newer one of equals.
AllocatorReplay replay_device(const RecordedDevice& device, simulator::AllocatorOptions options) {
  options.oldest_segment_first = true;
  AllocatorReplay newer = HistoryPlayer(device, options).play();
  if (newer.difference.empty()) return newer;
  options.oldest_segment_first = false;
  AllocatorReplay older = HistoryPlayer(device, options).play();
  const bool explains_more = older.difference.empty() || older.allocations > newer.allocations;
  return explains_more ? older : newer;
}

}  // namespace

std::vector<AllocatorReplay> replay_allocator(std::string_view snapshot, const std::string& file) {
  const RecordedMemory memory = read_recorded_memory(snapshot, file);
  const simulator::AllocatorOptions options =
      simulator::parse_alloc_conf(memory.settings, file, kNewestTorch);
  std::vector<AllocatorReplay> replays;
  for (const RecordedDevice& device : memory.devices) {
    if (device.history.empty()) continue;
    require_whole(device, file);
    replays.push_back(replay_device(device, options));
  }
  if (replays.empty()) {
    refuse(file, "none", "call torch.cuda.memory._record_memory_history() before training");
  }
  return replays;
}

Json to_json(const std::vector<AllocatorReplay>& replays) {
  Json devices = Json::array();
  for (const AllocatorReplay& replay : replays) {
    Json difference;
    if (!replay.difference.empty()) difference = Json(replay.difference);
    devices.push_back(Json::object({{"device", replay.device},
                                    {"allocations", replay.allocations},
                                    {"segments", replay.segments},
                                    {"peak_reserved_bytes", replay.peak_reserved.count()},
                                    {"reserved_bytes", replay.reserved.count()},
                                    {"oldest_segment_first", replay.oldest_segment_first},
                                    {"difference", difference}}));
  }
  return Json::object({{"schema", "zeroplan.replay/1"}, {"devices", devices}});
}

}  // namespace zeroplan::evidence
