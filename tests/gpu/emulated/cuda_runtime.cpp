// CUDA's runtime without CUDA: as much of its interface as runtime/cuda calls, on the host's
// memory, every call done when it returns. With the emulated kernels it makes one GPU of 1 GiB, on
// which the sources of runtime/cuda run as they are. It checks what a GPU would: that memory is
// given back as it was taken, that copies stay within what was allocated, that streams and events
// exist; it says nothing about order, which the guarded device does (tests/runtime). Graphs and the
// capture of streams: cuda_graphs.cpp.
#include "tests/gpu/emulated/cuda_runtime.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace {

namespace emulation = zeroplan::runtime::cuda::emulation;
using zeroplan::test::may_not_allocate;
using zeroplan::test::said;

constexpr std::size_t kMemory = std::size_t{1} << 30;

struct Machine {
  std::mutex mutex;
  std::map<const std::byte*, std::size_t> device, host;
  std::set<const void*> streams;
  std::map<const void*, std::chrono::steady_clock::time_point> events;  // when recorded
  std::map<const void*, cudaStream_t> captured;  // events that stand for a point of a graph
  std::size_t used = 0;
};

Machine& machine() {
  static auto* all = new Machine;  // outlives every static that uses it
  return *all;
}

thread_local cudaError_t last_error = cudaSuccess;

// The allocation has all of it; memory that is not ours passes.
bool whole(const void* data, std::size_t bytes) {
  Machine& all = machine();
  const auto* begin = static_cast<const std::byte*>(data);
  auto at = all.device.upper_bound(begin);
  if (at == all.device.begin()) return true;
  --at;
  const std::byte* end = at->first + at->second;
  return begin >= end || begin + bytes <= end;
}

// What a test asks of the emulation through the environment.
int number_said(const char* name, int otherwise) {
  const char* const said = std::getenv(name);
  return said == nullptr ? otherwise : std::atoi(said);
}

// How many, all with one memory.
int gpus() { return number_said("ZEROPLAN_EMULATED_GPUS", 1); }

template <typename All>
bool known(const All& all, const void* one) {
  return all.count(one) == 1;
}

}  // namespace

namespace zeroplan::test {

cudaError_t said(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

bool stream_exists(cudaStream_t stream) {
  const std::lock_guard lock(machine().mutex);
  return known(machine().streams, stream);
}

}  // namespace zeroplan::test

cudaError_t cudaGetDeviceCount(int* count) {
  *count = gpus();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* about, int) {
  std::memset(static_cast<void*>(about), 0, sizeof *about);
  std::snprintf(about->name, sizeof about->name, "emulated");
  about->totalGlobalMem = kMemory;
  about->major = 8;
  about->multiProcessorCount = 1;
  about->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int ordinal) {
  if (ordinal == number_said("ZEROPLAN_EMULATED_BROKEN_GPU", -1)) {
    return said(cudaErrorDevicesUnavailable);
  }
  return said(ordinal >= 0 && ordinal < gpus() ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* ordinal) {
  *ordinal = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int ordinal) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", ordinal);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorName(cudaError_t) { return "an error of the emulation"; }
const char* cudaGetErrorString(cudaError_t) { return "of the emulation"; }

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(machine().mutex);
  *total = kMemory;
  *free = kMemory - machine().used;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  if (may_not_allocate()) return said(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(machine().mutex);
  if (machine().used + bytes > kMemory) return said(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(*data, 0xff, bytes);
  machine().device[static_cast<std::byte*>(*data)] = bytes;
  machine().used += bytes;
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  if (may_not_allocate()) return said(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(machine().mutex);
  const auto at = machine().device.find(static_cast<std::byte*>(data));
  if (at == machine().device.end()) return said(cudaErrorInvalidValue);
  machine().used -= at->second;
  machine().device.erase(at);
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  if (may_not_allocate()) return said(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(machine().mutex);
  const int most = number_said("ZEROPLAN_EMULATED_PINNED_BYTES", -1);
  if (most >= 0 && bytes > static_cast<std::size_t>(most)) return said(cudaErrorMemoryAllocation);
  *data = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  machine().host[static_cast<std::byte*>(*data)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  if (may_not_allocate()) return said(cudaErrorStreamCaptureUnsupported);
  const std::lock_guard lock(machine().mutex);
  if (machine().host.erase(static_cast<std::byte*>(data)) == 0) return said(cudaErrorInvalidValue);
  std::free(data);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(machine().mutex);
  *stream = reinterpret_cast<cudaStream_t>(std::malloc(1));
  machine().streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(machine().mutex);
  if (machine().streams.erase(stream) == 0) return said(cudaErrorInvalidResourceHandle);
  std::free(stream);
  return cudaSuccess;
}
// A stream that is captured has nothing to wait for: who asks breaks the capture.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!zeroplan::test::stream_exists(stream)) return said(cudaErrorInvalidResourceHandle);
  if (!emulation::is_captured(stream)) return cudaSuccess;
  emulation::break_capture(stream);
  return said(cudaErrorStreamCaptureUnsupported);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return cudaStreamQuery(stream); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const std::lock_guard lock(machine().mutex);
  *event = reinterpret_cast<cudaEvent_t>(std::malloc(1));
  machine().events[*event] = {};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(machine().mutex);
  if (machine().events.erase(event) == 0) return said(cudaErrorInvalidResourceHandle);
  machine().captured.erase(event);
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(machine().mutex);
  if (const auto point = machine().captured.find(event); point != machine().captured.end()) {
    if (emulation::is_captured(point->second)) emulation::break_capture(point->second);
    return said(cudaErrorCapturedEvent);
  }
  return said(known(machine().events, event) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaEventQuery(event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!zeroplan::test::stream_exists(stream)) return said(cudaErrorInvalidResourceHandle);
  const bool captured = emulation::is_captured(stream);
  const std::lock_guard lock(machine().mutex);
  if (!known(machine().events, event)) return said(cudaErrorInvalidResourceHandle);
  if (captured) {
    machine().captured[event] = stream;
    return cudaSuccess;
  }
  machine().captured.erase(event);
  machine().events[event] = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!zeroplan::test::stream_exists(stream)) return said(cudaErrorInvalidResourceHandle);
  const bool captured = emulation::is_captured(stream);
  const std::lock_guard lock(machine().mutex);
  if (!known(machine().events, event)) return said(cudaErrorInvalidResourceHandle);
  if (captured == known(machine().captured, event)) return cudaSuccess;
  // A graph behind work that is not its own. The other way round CUDA would capture this stream,
  // too, which nothing here asks for.
  if (captured) emulation::break_capture(stream);
  return said(captured ? cudaErrorStreamCaptureIsolation : cudaErrorNotSupported);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(machine().mutex);
  const auto& events = machine().events;
  if (!known(events, begin) || !known(events, end)) return said(cudaErrorInvalidResourceHandle);
  const auto never = std::chrono::steady_clock::time_point{};
  if (events.at(begin) == never || events.at(end) == never) {
    return said(cudaErrorInvalidResourceHandle);
  }
  *milliseconds =
      std::chrono::duration<float, std::milli>(events.at(end) - events.at(begin)).count();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!zeroplan::test::stream_exists(stream)) return said(cudaErrorInvalidResourceHandle);
  {
    const std::lock_guard lock(machine().mutex);
    if (!whole(to, bytes) || !whole(from, bytes)) return said(cudaErrorInvalidValue);
  }
  return zeroplan::test::ordered(stream, [=] { std::memmove(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!zeroplan::test::stream_exists(stream)) return said(cudaErrorInvalidResourceHandle);
  {
    const std::lock_guard lock(machine().mutex);
    if (!whole(to, bytes)) return said(cudaErrorInvalidValue);
  }
  return zeroplan::test::ordered(stream, [=] { std::memset(to, value, bytes); });
}
