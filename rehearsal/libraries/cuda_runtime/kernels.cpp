// Launches: what nvcc's generated code and torch call to run a kernel. Nothing runs.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "rehearsal/libraries/cuda_abi.hpp"
#include "rehearsal/libraries/cuda_runtime/last_error.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/settings.hpp"

namespace {

using namespace zeroplan::gpu;

thread_local std::vector<LaunchConfiguration> pushed;

int launched(const void* function, Dim3 grid, Dim3 block, std::size_t shared, void* stream) {
  if (!record().writes()) {
    enqueue(Work::kernel, stream, "%s", "");
    return kSuccess;
  }
  record().stop_clock();
  enqueue(Work::kernel,
          stream,
          "%u,%u,%u %u,%u,%u %zu %s",
          grid.x,
          grid.y,
          grid.z,
          block.x,
          block.y,
          block.z,
          shared,
          record().kernel_name(function).c_str());
  return kSuccess;
}

// The newest form of a function of the driver: cuMemGetInfo is cuMemGetInfo_v2.
int driver_function(const char* name, void** function, int* found) {
  *function = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
  if (*function == nullptr) *function = dlsym(RTLD_DEFAULT, name);
  if (found != nullptr) *found = *function != nullptr ? 0 : 1;
  return *function != nullptr ? kSuccess : failed(kSymbolNotFound);
}

constexpr int kRegistersPerThread = 32;
constexpr int kMostCluster = 8;

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle[4];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(
    void**, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  record().name_kernel(host, name);
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, std::size_t shared, void* stream) {
  pushed.push_back({grid, block, shared, stream, nullptr, 0});
  return 0;
}
int __cudaPopCallConfiguration(Dim3* grid, Dim3* block, std::size_t* shared, void** stream) {
  if (pushed.empty()) return failed(kMissingConfiguration);
  const LaunchConfiguration top = pushed.back();
  pushed.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *stream = top.stream;
  return kSuccess;
}
int __cudaGetKernel(const void** kernel, const void* host) {
  *kernel = host;
  return kSuccess;
}
int __cudaLaunchKernel(
    const void* kernel, Dim3 grid, Dim3 block, void**, std::size_t shared, void* stream) {
  return launched(kernel, grid, block, shared, stream);
}
int cudaLaunchKernel(
    const void* function, Dim3 grid, Dim3 block, void**, std::size_t shared, void* stream) {
  return launched(function, grid, block, shared, stream);
}
int cudaLaunchCooperativeKernel(
    const void* function, Dim3 grid, Dim3 block, void**, std::size_t shared, void* stream) {
  return launched(function, grid, block, shared, stream);
}
int cudaLaunchKernelExC(const LaunchConfiguration* launch, const void* function, void**) {
  return launched(function, launch->grid, launch->block, launch->shared, launch->stream);
}

int cudaFuncGetAttributes(FunctionAttributes* attributes, const void*) {
  *attributes = {};
  attributes->most_threads = kThreadsPerBlock;
  attributes->registers = kRegistersPerThread;
  attributes->ptx_version = settings().kernel_capability();
  attributes->binary_version = settings().kernel_capability();
  attributes->most_dynamic_shared = settings().shared_per_block();
  return kSuccess;
}
int cudaFuncSetAttribute(const void*, int, int) { return kSuccess; }
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                  const void*,
                                                  int threads,
                                                  std::size_t) {
  const int fit = threads > 0 ? settings().threads_per_multiprocessor() / threads : 1;
  *blocks = std::clamp(fit, 1, kBlocksPerProcessor);
  return kSuccess;
}
int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, std::size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
int cudaOccupancyMaxPotentialClusterSize(int* blocks, const void*, const LaunchConfiguration*) {
  *blocks = kMostCluster;
  return kSuccess;
}
int cudaOccupancyMaxActiveClusters(int* clusters, const void*, const LaunchConfiguration*) {
  *clusters = settings().multiprocessors / 2;
  return kSuccess;
}

int cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long, int* found) {
  return driver_function(name, function, found);
}
int cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, int* found) {
  return driver_function(name, function, found);
}

// What succeeds by doing nothing.
int cudaDeviceEnablePeerAccess(int, unsigned) { return kSuccess; }
int cudaThreadExchangeStreamCaptureMode(int*) { return kSuccess; }
int cudaProfilerStart() { return kSuccess; }
int cudaProfilerStop() { return kSuccess; }
}
