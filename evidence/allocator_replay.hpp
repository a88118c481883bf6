// A recorded history of PyTorch's allocator, played through its replica: every allocation has to
// get the block that it got, every segment has to be asked of the device when it was, and at the
// end blocks and segments are the same ones. What differs is the replica's fault, or the history
// has what it does not know (CUDA graphs' private pools).
//
// Taken from the recording: requests and frees in their order (a free counts when it is completed,
// so when the events it waited for had ended), where the device put each segment, and when cached
// memory was given back. Not taken: which block is used, split and merged, when the device is
// asked, and for how much.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/units.hpp"
#include "evidence/recorded_memory.hpp"

namespace zeroplan::evidence {

struct AllocatorReplay {
  std::int64_t device = 0;
  std::int64_t allocations = 0;  // that were played
  std::int64_t segments = 0;     // that were asked of the device
  Bytes peak_reserved;           // as recorded
  Bytes reserved;                // at the end, as recorded
  // Of equal free blocks that of the oldest segment was taken, as torch does from 2.12 on; a
  // snapshot does not name its torch, so that both orders are tried.
  bool oldest_segment_first = false;
  // What differed first: then it was not played on. Empty: all is equal to the byte.
  std::string difference;
};

// One for each device with a history. Throws InputError for no snapshot, one without a history, and
// one whose history does not begin with the first allocation or has expandable segments.
std::vector<AllocatorReplay> replay_allocator(std::string_view snapshot, const std::string& file);

// {"schema":"zeroplan.replay/1","devices":[{"device":0,"allocations":n,"segments":n,
//   "peak_reserved_bytes":n,"reserved_bytes":n,"oldest_segment_first":true,"difference":null}]}
Json to_json(const std::vector<AllocatorReplay>& replays);

}  // namespace zeroplan::evidence
