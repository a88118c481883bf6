// PyTorch's memory snapshots: torch.cuda.memory._dump_snapshot writes a pickle of
//   {"segments": [{"device", "total_size", "blocks": [{"size", "state"}]}],
//    "device_traces": [[{"action", "size", ...}]]}
// The segments are what is reserved at the moment of the dump; walking the history of a device
// backwards from there gives what was allocated and reserved before each event, so the peaks of the
// time it covers. Sizes of the history are those asked for, rounded up to 512 bytes as the
// allocator does. Source: torch/csrc/cuda/memory_snapshot.cpp, torch/cuda/memory.py:_snapshot,
// c10/cuda/CUDACachingAllocator.cpp:record_trace, round_size.
#pragma once

#include <string_view>

#include "evidence/importers/run_findings.hpp"

namespace zeroplan {

// Throws InputError for a pickle that is no data or no snapshot.
void read_memory_snapshot(std::string_view bytes, RunFindings& findings);

}  // namespace zeroplan
