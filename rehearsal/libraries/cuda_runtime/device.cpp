// The runtime's questions about devices.
#include <cstdio>
#include <cstring>

#include "rehearsal/libraries/cuda_abi.hpp"
#include "rehearsal/libraries/cuda_runtime/last_error.hpp"
#include "rehearsal/libraries/gpu/memory.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"
#include "rehearsal/libraries/gpu/streams.hpp"

namespace zeroplan::gpu {

thread_local int last_error = kSuccess;

int failed(int status) {
  last_error = status;
  return status;
}

namespace {

const PropertyPlaces& places() {
  const int release = settings().cuda / 1000;
  return release >= 13 ? kProperties13 : release == 12 ? kProperties12 : kProperties11;
}

class Properties {
 public:
  explicit Properties(void* memory) : memory_(static_cast<char*>(memory)) {}
  void number(std::size_t place, int value) { std::memcpy(memory_ + place, &value, sizeof value); }
  void size(std::size_t place, std::size_t value) {
    std::memcpy(memory_ + place, &value, sizeof value);
  }

 private:
  char* memory_;
};

void fill_common(Properties& to, const Settings& gpu) {
  constexpr CommonPropertyPlaces at = kCommonPropertyPlaces;
  to.size(at.memory, gpu.memory);
  to.size(at.shared_per_block, kSharedPerBlock);
  to.number(at.registers_per_block, kRegisters);
  to.number(at.warp, kWarp);
  to.size(at.pitch, kMostGridX);
  to.number(at.threads_per_block, kThreadsPerBlock);
  const int block[] = {kThreadsPerBlock, kThreadsPerBlock, 64};
  const int grid[] = {kMostGridX, kMostGrid, kMostGrid};
  for (std::size_t i = 0; i < 3; ++i) {
    to.number(at.block_shape + i * sizeof(int), block[i]);
    to.number(at.grid_shape + i * sizeof(int), grid[i]);
  }
  to.size(at.constant, kConstant);
  to.number(at.major, gpu.major);
  to.number(at.minor, gpu.minor);
  to.size(at.texture_alignment, 512);
  to.size(at.texture_pitch_alignment, 32);
}

void fill(Properties& to, const PropertyPlaces& at, const Settings& gpu, int device) {
  to.number(at.processors, gpu.multiprocessors);
  to.number(at.bus, 1 + device);
  to.number(at.copy_engines, kCopyEngines);
  to.number(at.bus_width, kBusWidth);
  to.number(at.l2, static_cast<int>(gpu.l2));
  to.number(at.persisting_l2, static_cast<int>(gpu.l2 / 8 * 5));
  to.number(at.threads_per_processor, gpu.threads_per_multiprocessor());
  to.size(at.shared_per_processor, static_cast<std::size_t>(gpu.shared_per_multiprocessor()));
  to.number(at.registers_per_processor, kRegisters);
  to.size(at.shared_opted_in, static_cast<std::size_t>(gpu.shared_per_block()));
  to.number(at.blocks_per_processor, kBlocksPerProcessor);
  to.number(at.access_window, kAccessWindow);
  to.size(at.reserved_shared, kReservedShared);
  if (at.memory_pools != 0) to.number(at.memory_pools, 1);
  for (const std::size_t yes : {at.can_map_host,
                                at.concurrent_kernels,
                                at.unified_addresses,
                                at.stream_priorities,
                                at.global_l1,
                                at.local_l1,
                                at.managed,
                                at.concurrent_managed,
                                at.preemption,
                                at.cooperative}) {
    to.number(yes, 1);
  }
}

int properties(void* memory, int device) {
  if (device < 0 || device >= settings().devices) return failed(kInvalidDevice);
  const PropertyPlaces& at = places();
  std::memset(memory, 0, at.size);
  char* const text = static_cast<char*>(memory);
  std::snprintf(text, kCommonPropertyPlaces.uuid, "%s", settings().name.c_str());
  constexpr std::size_t kUuidBytes = 16;
  std::memset(text + kCommonPropertyPlaces.uuid, 17 + device, kUuidBytes);
  Properties to(memory);
  fill_common(to, settings());
  fill(to, at, settings(), device);
  return kSuccess;
}

}  // namespace
}  // namespace zeroplan::gpu

extern "C" {

using namespace zeroplan::gpu;

int cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return kSuccess;
}
int cudaGetDevice(int* device) {
  *device = current_device();
  return kSuccess;
}
int cudaSetDevice(int device) {
  if (device < 0 || device >= settings().devices) return failed(kInvalidDevice);
  set_current_device(device);
  return kSuccess;
}
int cudaGetDeviceProperties(void* to, int device) { return properties(to, device); }
int cudaGetDeviceProperties_v2(void* to, int device) { return properties(to, device); }
int cudaDeviceGetAttribute(int* value, int asked, int device) {
  *value = attribute(static_cast<Attribute>(asked), device);
  return kSuccess;
}
int cudaDeviceGetPCIBusId(char* text, int room, int device) {
  std::snprintf(text, static_cast<std::size_t>(room), "0000:%02x:00.0", 1 + device);
  return kSuccess;
}
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kSuccess;
}
int cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return kSuccess;
}
int cudaDriverGetVersion(int* version) {
  *version = settings().cuda;
  return kSuccess;
}
int cudaRuntimeGetVersion(int* version) {
  *version = settings().cuda;
  return kSuccess;
}
int cudaDeviceSynchronize() {
  note_on_stream("sync", Streams::kDefault, "device");
  streams().synchronize();
  return kSuccess;
}
int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  *free_bytes = memory().free_bytes(current_device());
  *total = memory().total();
  return kSuccess;
}
int cudaGetLastError() {
  const int status = last_error;
  last_error = kSuccess;
  return status;
}
int cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorString(int status) { return status_text(status); }
const char* cudaGetErrorName(int status) { return status_name(status); }
}
