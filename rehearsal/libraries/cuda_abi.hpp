// What of CUDA's binary interface the emulated libraries need, so that no header of CUDA has to be
// on the machine.
//
// Numbers and layouts are those of CUDA 11.8, 12 and 13 on x86-64 and aarch64 Linux; where they
// differ by release the release is settings().cuda. tests/rehearsal/abi_test.cpp holds them against
// CUDA's own headers where there are.
#pragma once

#include <cstddef>
#include <cstdint>

namespace zeroplan::gpu {

// cudaError_t, CUresult: the same numbers for what is used here.
enum Status : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kMissingConfiguration = 52,
  kInvalidDevice = 101,
  kSymbolNotFound = 500,
  kNotReady = 600,
  kNotSupported = 801,
};
const char* status_name(int status);
const char* status_text(int status);

struct Dim3 {
  unsigned x, y, z;
};

struct LaunchConfiguration {  // cudaLaunchConfig_t
  Dim3 grid;
  Dim3 block;
  std::size_t shared;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

struct DriverLaunchConfiguration {  // CUlaunchConfig
  Dim3 grid;
  Dim3 block;
  unsigned shared;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

struct PointerAttributes {  // cudaPointerAttributes; CUDA 13 has reserved fields behind these
  int type;                 // 0 unregistered, 1 of the host, 2 of the device
  int device;
  void* device_pointer;
  void* host_pointer;
};

struct FunctionAttributes {  // cudaFuncAttributes; CUDA 12 has more behind these
  std::size_t shared, constant, local;
  int most_threads, registers, ptx_version, binary_version, cache_mode, most_dynamic_shared,
      carveout;
};

// Where cudaDeviceProp has what is filled in; `size` of it is zero elsewhere.
struct PropertyPlaces {
  std::size_t size;
  std::size_t processors, can_map_host, concurrent_kernels, bus, copy_engines, unified_addresses,
      bus_width, l2, persisting_l2, threads_per_processor, stream_priorities, global_l1, local_l1,
      shared_per_processor, registers_per_processor, managed, concurrent_managed, preemption,
      cooperative, shared_opted_in, blocks_per_processor, access_window, reserved_shared,
      memory_pools;
};
// The same in every release.
struct CommonPropertyPlaces {
  std::size_t name = 0, uuid = 256, memory = 288, shared_per_block = 296, registers_per_block = 304,
              warp = 308, pitch = 312, threads_per_block = 320, block_shape = 324, grid_shape = 336,
              constant = 352, major = 360, minor = 364, texture_alignment = 368,
              texture_pitch_alignment = 376;
};
inline constexpr CommonPropertyPlaces kCommonPropertyPlaces{};
inline constexpr PropertyPlaces kProperties11{728, 388, 400, 576, 584, 600, 604, 612, 616,
                                              620, 624, 628, 632, 636, 640, 648, 652, 676,
                                              680, 688, 696, 712, 716, 720, 0};
inline constexpr PropertyPlaces kProperties12{1032, 388, 400, 576, 584, 600, 604, 612, 616,
                                              620,  624, 628, 632, 636, 640, 648, 652, 676,
                                              680,  688, 696, 712, 716, 720, 744};
inline constexpr PropertyPlaces kProperties13{1008, 384, 392, 560, 568, 584, 588, 592, 596,
                                              600,  604, 608, 612, 616, 624, 632, 636, 656,
                                              660,  668, 672, 688, 692, 696, 720};

// cudaDeviceAttr; the driver's CUdevice_attribute has the same numbers.
enum class Attribute : int {
  threads_per_block = 1,
  block_x = 2,
  block_y = 3,
  block_z = 4,
  grid_x = 5,
  grid_y = 6,
  grid_z = 7,
  shared_per_block = 8,
  constant = 9,
  warp = 10,
  registers_per_block = 12,
  clock_khz = 13,
  processors = 16,
  can_map_host = 19,
  concurrent_kernels = 31,
  bus = 33,
  memory_clock_khz = 36,
  bus_width = 37,
  l2 = 38,
  threads_per_processor = 39,
  copy_engines = 40,
  unified_addresses = 41,
  major = 75,
  minor = 76,
  stream_priorities = 78,
  shared_per_processor = 81,
  registers_per_processor = 82,
  managed = 83,
  concurrent_managed = 89,
  preemption = 90,
  cooperative = 95,
  shared_opted_in = 97,
  host_register = 99,
  virtual_memory = 102,
  posix_handles = 103,
  blocks_per_processor = 106,
  reserved_shared = 111,
  memory_pools = 115,
};
// Of the emulated GPU; 0 for what it does not have.
int attribute(Attribute asked, int device);

inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kRegisters = 65536;
inline constexpr int kSharedPerBlock = 49152;
inline constexpr int kConstant = 65536;
inline constexpr int kMostGrid = 65535;
inline constexpr int kMostGridX = 2147483647;
inline constexpr int kWarp = 32;
inline constexpr int kReservedShared = 1024;
inline constexpr int kBusWidth = 5120;
inline constexpr int kCopyEngines = 3;
inline constexpr int kBlocksPerProcessor = 32;
inline constexpr int kAccessWindow = 134213632;

}  // namespace zeroplan::gpu
