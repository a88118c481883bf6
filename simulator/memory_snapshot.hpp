// The allocator's history of a simulated run in the format of torch.cuda.memory._dump_snapshot, for
// PyTorch's memory visualizer (pytorch.org/memory_viz).
#pragma once

#include <string>
#include <vector>

#include "simulator/allocator.hpp"
#include "simulator/program.hpp"

namespace zeroplan::simulator {

// A pickle. Each allocation's frame names its memory category and, as file, the module, bucket or
// sub-group it was made for. `events` and `segments` are those of one run of `program`, whose tags
// are positions in its code (event_loop.cpp). Source: torch/csrc/cuda/memory_snapshot.cpp, keys and
// action names. Left out: times, Python stacks.
std::string memory_snapshot(const Program& program,
                            const std::vector<AllocatorEvent>& events,
                            const std::vector<SegmentSnapshot>& segments);

}  // namespace zeroplan::simulator
