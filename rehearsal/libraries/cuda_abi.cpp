#include "rehearsal/libraries/cuda_abi.hpp"

#include "rehearsal/libraries/gpu/settings.hpp"

namespace zeroplan::gpu {

const char* status_name(int status) {
  switch (status) {
    case kSuccess:
      return "cudaSuccess";
    case kOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case kInvalidDevice:
      return "cudaErrorInvalidDevice";
    case kNotReady:
      return "cudaErrorNotReady";
    case kNotSupported:
      return "cudaErrorNotSupported";
    default:
      return "cudaErrorUnknown";
  }
}

const char* status_text(int status) {
  switch (status) {
    case kSuccess:
      return "no error";
    case kOutOfMemory:
      return "out of memory";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kNotReady:
      return "device not ready";
    case kNotSupported:
      return "operation not supported (zeroplan rehearse does not emulate it)";
    default:
      return "an error of zeroplan rehearse's emulated GPU";
  }
}

int attribute(Attribute asked, int device) {
  const Settings& gpu = settings();
  switch (asked) {
    case Attribute::threads_per_block:
    case Attribute::block_x:
    case Attribute::block_y:
      return kThreadsPerBlock;
    case Attribute::block_z:
      return 64;
    case Attribute::grid_x:
      return kMostGridX;
    case Attribute::grid_y:
    case Attribute::grid_z:
      return kMostGrid;
    case Attribute::shared_per_block:
      return kSharedPerBlock;
    case Attribute::constant:
      return kConstant;
    case Attribute::warp:
      return kWarp;
    case Attribute::registers_per_block:
    case Attribute::registers_per_processor:
      return kRegisters;
    case Attribute::clock_khz:
      return 1410000;
    case Attribute::memory_clock_khz:
      return 1593000;
    case Attribute::processors:
      return gpu.multiprocessors;
    case Attribute::bus:
      return 1 + device;
    case Attribute::bus_width:
      return kBusWidth;
    case Attribute::l2:
      return static_cast<int>(gpu.l2);
    case Attribute::threads_per_processor:
      return gpu.threads_per_multiprocessor();
    case Attribute::copy_engines:
      return kCopyEngines;
    case Attribute::major:
      return gpu.major;
    case Attribute::minor:
      return gpu.minor;
    case Attribute::shared_per_processor:
      return gpu.shared_per_multiprocessor();
    case Attribute::shared_opted_in:
      return gpu.shared_per_block();
    case Attribute::blocks_per_processor:
      return kBlocksPerProcessor;
    case Attribute::reserved_shared:
      return kReservedShared;
    case Attribute::can_map_host:
    case Attribute::concurrent_kernels:
    case Attribute::unified_addresses:
    case Attribute::stream_priorities:
    case Attribute::managed:
    case Attribute::concurrent_managed:
    case Attribute::preemption:
    case Attribute::cooperative:
    case Attribute::host_register:
    case Attribute::virtual_memory:
    case Attribute::posix_handles:
    case Attribute::memory_pools:
      return 1;
  }
  return 0;
}

}  // namespace zeroplan::gpu
