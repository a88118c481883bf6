// PyTorch's memory snapshots (evidence/recorded_memory.hpp): walking the history of a device
// backwards from what is held at the dump gives what was allocated and reserved before each event,
// so the peaks of the time it covers. Sizes are rounded up to 512 bytes as the allocator does.
// Source: c10/cuda/CUDACachingAllocator.cpp:round_size.
#pragma once

#include <string_view>

#include "evidence/importers/run_findings.hpp"

namespace zeroplan::evidence {

// Throws InputError for a pickle that is no data or no snapshot.
void read_memory_snapshot(std::string_view bytes, RunFindings& findings);

}  // namespace zeroplan::evidence
