// The driver: what torch asks it for - virtual memory (expandable segments), contexts, launches of
// Triton's kernels.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include <dlfcn.h>

#include "rehearsal/libraries/cuda_abi.hpp"
#include "rehearsal/libraries/gpu/memory.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"

namespace {

using namespace zeroplan::gpu;

constexpr std::size_t kGranularity = std::size_t{2} << 20;
char only_context[64];
char only_module[64];

// Memory of the GPU without an address, by the driver's handle.
class Handles {
 public:
  int create(unsigned long long* handle, std::size_t bytes) {
    const int device = current_device();
    if (!memory().take(device, bytes)) return kOutOfMemory;
    const std::lock_guard<std::mutex> guard(mutex_);
    *handle = next_++;
    parts_[*handle] = {device, bytes};
    return kSuccess;
  }
  int release(unsigned long long handle) {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = parts_.find(handle);
    if (found == parts_.end()) return kInvalidValue;
    memory().give_back(found->second.device, found->second.bytes);
    parts_.erase(found);
    return kSuccess;
  }

 private:
  struct Part {
    int device;
    std::size_t bytes;
  };
  std::mutex mutex_;
  unsigned long long next_ = 1;
  std::map<unsigned long long, Part> parts_;
};

Handles& handles() {
  static Handles* const made = new Handles;
  return *made;
}

int launched(const void* function, Dim3 grid, Dim3 block, unsigned shared, void* stream) {
  enqueue(Work::kernel,
          stream,
          "%s %u,%u,%u %u,%u,%u %u",
          static_cast<const char*>(function),
          grid.x,
          grid.y,
          grid.z,
          block.x,
          block.y,
          block.z,
          shared);
  return kSuccess;
}

// CUpointer_attribute
constexpr int kPointerContext = 1;
constexpr int kPointerMemoryType = 2;
constexpr int kPointerDevicePointer = 3;
constexpr int kPointerHostPointer = 4;
constexpr int kPointerDeviceOrdinal = 9;

// CUfunction_attribute
constexpr int kFunctionThreads = 0;
constexpr int kFunctionRegisters = 4;
constexpr int kFunctionPtx = 5;
constexpr int kFunctionBinary = 6;
constexpr int kRegistersPerThread = 32;

int one_module(void** module) {
  *module = only_module;
  return kSuccess;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) {
  *version = settings().cuda;
  return kSuccess;
}
int cuGetErrorString(int status, const char** text) {
  *text = status_text(status);
  return kSuccess;
}
int cuGetErrorName(int status, const char** text) {
  *text = status_name(status);
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  *count = settings().devices;
  return kSuccess;
}
int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= settings().devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}
int cuDeviceGetName(char* text, int room, int) {
  std::snprintf(text, static_cast<std::size_t>(room), "%s", settings().name.c_str());
  return kSuccess;
}
int cuDeviceGetUuid(void* uuid, int device) {
  constexpr std::size_t kUuidBytes = 16;
  std::memset(uuid, 17 + device, kUuidBytes);
  return kSuccess;
}
int cuDeviceGetUuid_v2(void* uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = memory().total();
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int asked, int device) {
  *value = attribute(static_cast<Attribute>(asked), device);
  return kSuccess;
}
int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total) {
  *free_bytes = memory().free_bytes(current_device());
  *total = memory().total();
  return kSuccess;
}

int cuCtxGetCurrent(void** context) {
  *context = only_context;
  return kSuccess;
}
int cuCtxSetCurrent(void*) { return kSuccess; }
int cuCtxPushCurrent_v2(void*) { return kSuccess; }
int cuCtxPopCurrent_v2(void** context) { return cuCtxGetCurrent(context); }
int cuCtxGetDevice(int* device) {
  *device = current_device();
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) { return cuCtxGetCurrent(context); }
int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  if (flags != nullptr) *flags = 0;
  *active = 1;
  return kSuccess;
}
int cuCtxGetLimit(std::size_t* value, int) {
  *value = std::size_t{1} << 20;  // the usual size of the buffer that kernels print into
  return kSuccess;
}
int cuCtxSetLimit(int, std::size_t) { return kSuccess; }
int cuStreamGetCtx(void*, void** context) { return cuCtxGetCurrent(context); }
int cuStreamIsCapturing(void*, int* status) {
  *status = 0;
  return kSuccess;
}

int cuMemGetAllocationGranularity(std::size_t* bytes, const void*, int) {
  *bytes = kGranularity;
  return kSuccess;
}
int cuMemAddressReserve(void** address, std::size_t bytes, std::size_t, void*, unsigned long long) {
  *address = memory().reserve_addresses(current_device(), bytes);
  return *address == nullptr ? kOutOfMemory : kSuccess;
}
int cuMemAddressFree(void* address, std::size_t) {
  return memory().release_addresses(address) ? kSuccess : kInvalidValue;
}
int cuMemCreate(unsigned long long* handle, std::size_t bytes, const void*, unsigned long long) {
  return handles().create(handle, bytes);
}
int cuMemRelease(unsigned long long handle) { return handles().release(handle); }
int cuMemMap(void*, std::size_t, std::size_t, unsigned long long, unsigned long long) {
  return kSuccess;
}
int cuMemUnmap(void*, std::size_t) { return kSuccess; }
int cuMemSetAccess(void*, std::size_t, const void*, std::size_t) { return kSuccess; }
int cuPointerGetAttribute(void* value, int asked, void* address) {
  const Where where = memory().where(address);
  if (where.place == Place::elsewhere) return kInvalidValue;
  switch (asked) {
    case kPointerContext:
      *static_cast<void**>(value) = only_context;
      return kSuccess;
    case kPointerMemoryType:
      *static_cast<int*>(value) = where.place == Place::gpu ? 2 : 1;
      return kSuccess;
    case kPointerDevicePointer:
    case kPointerHostPointer:
      *static_cast<void**>(value) = address;
      return kSuccess;
    case kPointerDeviceOrdinal:
      *static_cast<int*>(value) = where.device < 0 ? current_device() : where.device;
      return kSuccess;
    default:
      *static_cast<int*>(value) = 0;
      return kSuccess;
  }
}

int cuModuleLoad(void** module, const char*) { return one_module(module); }
int cuModuleLoadData(void** module, const void*) { return one_module(module); }
int cuModuleLoadDataEx(void** module, const void*, unsigned, void*, void**) {
  return one_module(module);
}
int cuModuleUnload(void*) { return kSuccess; }
// A function is its name.
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = strdup(name);
  return kSuccess;
}
int cuModuleLoadFatBinary(void** module, const void*) { return one_module(module); }
int cuLibraryLoadData(
    void** library, const void*, void*, void**, unsigned, void*, void**, unsigned) {
  return one_module(library);
}
int cuLibraryUnload(void*) { return kSuccess; }
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  return cuModuleGetFunction(kernel, library, name);
}
int cuKernelGetFunction(void** function, void* kernel) {
  *function = kernel;
  return kSuccess;
}
int cuFuncGetAttribute(int* value, int asked, void*) {
  switch (asked) {
    case kFunctionThreads:
      *value = kThreadsPerBlock;
      return kSuccess;
    case kFunctionRegisters:
      *value = kRegistersPerThread;
      return kSuccess;
    case kFunctionPtx:
    case kFunctionBinary:
      *value = settings().kernel_capability();
      return kSuccess;
    default:  // bytes of local, constant and shared memory, of which nobody knows
      *value = 0;
      return kSuccess;
  }
}
// torch from 2.15 wants to hear what the driver has to say, which is nothing.
int cuLogsRegisterCallback(void*, void*, void** handle) {
  if (handle != nullptr) *handle = only_context;
  return kSuccess;
}
int cuLogsUnregisterCallback(void*) { return kSuccess; }
int cuTensorMapEncodeTiled(...) { return kSuccess; }
int cuFuncSetAttribute(void*, int, int) { return kSuccess; }
int cuFuncSetCacheConfig(void*, int) { return kSuccess; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, std::size_t) {
  *blocks = threads > 0 ? settings().threads_per_multiprocessor() / threads : 1;
  return kSuccess;
}
int cuOccupancyMaxActiveClusters(int* clusters, void*, const void*) {
  *clusters = settings().multiprocessors / 2;
  return kSuccess;
}
int cuLaunchKernel(void* function,
                   unsigned grid_x,
                   unsigned grid_y,
                   unsigned grid_z,
                   unsigned block_x,
                   unsigned block_y,
                   unsigned block_z,
                   unsigned shared,
                   void* stream,
                   void**,
                   void**) {
  return launched(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream);
}
int cuLaunchKernelEx(const DriverLaunchConfiguration* launch, void* function, void**, void**) {
  return launched(function, launch->grid, launch->block, launch->shared, launch->stream);
}

int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* found) {
  *function = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = dlsym(RTLD_DEFAULT, name);
  if (found != nullptr) *found = *function != nullptr ? 0 : 1;
  return *function != nullptr ? kSuccess : kSymbolNotFound;
}
int cuGetProcAddress(const char* name, void** function, int release, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, release, flags, nullptr);
}
}
