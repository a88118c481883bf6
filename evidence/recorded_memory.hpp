// PyTorch's memory snapshots: torch.cuda.memory._dump_snapshot writes a pickle of
//   {"segments": [{"device", "address", "total_size", "stream", "blocks": [{"size", "state"}]}],
//    "device_traces": [[{"action", "addr", "size", "stream"}]]}
// The segments are what is reserved at the moment of the dump; a device's trace is the history of
// its allocator, oldest first. Sizes of the history are those asked for, before they are rounded.
// Source: torch/csrc/cuda/memory_snapshot.cpp, torch/cuda/memory.py:_snapshot,
// c10/cuda/CUDACachingAllocator.cpp:record_trace. Of a stack the file and function of one frame are
// read: the innermost outside torch's operations, or what a simulation writes there, its module
// (simulator/memory_snapshot.hpp). Times are not read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/allocator.hpp"

namespace zeroplan::evidence {

struct RecordedEvent {
  simulator::AllocatorAction action = simulator::AllocatorAction::alloc;
  std::int64_t address = 0;
  std::int64_t size = 0;  // bytes
  std::int64_t stream = 0;
  std::string place;  // who asked for it: "modeling_llama.py:97 forward"; empty: unknown
};

struct RecordedBlock {
  std::int64_t address = 0;
  std::int64_t size = 0;  // bytes
  simulator::BlockState state = simulator::BlockState::free;
};

struct RecordedSegment {
  std::int64_t address = 0;
  std::int64_t size = 0;  // bytes
  std::vector<RecordedBlock> blocks;
};

struct RecordedDevice {
  std::int64_t device = 0;
  std::vector<RecordedEvent> history;
  std::vector<RecordedSegment> segments;
};

struct RecordedMemory {
  std::vector<RecordedDevice> devices;  // those with segments or a history
  std::string settings;                 // PYTORCH_CUDA_ALLOC_CONF, where the release writes it
};

// Numbers that are missing, negative or beyond 2^60 are 0. Throws InputError for a pickle that is
// no data or no snapshot.
RecordedMemory read_recorded_memory(std::string_view bytes, const std::string& file);

}  // namespace zeroplan::evidence
