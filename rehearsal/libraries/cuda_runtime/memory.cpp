// The runtime's allocations and copies.
#include "rehearsal/libraries/gpu/memory.hpp"

#include <cstring>

#include "rehearsal/libraries/cuda_abi.hpp"
#include "rehearsal/libraries/cuda_runtime/last_error.hpp"
#include "rehearsal/libraries/gpu/record.hpp"
#include "rehearsal/libraries/gpu/streams.hpp"

namespace {

using namespace zeroplan::gpu;

constexpr int kToGpu = 1;     // cudaMemcpyHostToDevice
constexpr int kToHost = 2;    // cudaMemcpyDeviceToHost
constexpr int kPeerCopy = 3;  // cudaMemcpyDeviceToDevice
constexpr int kByAddresses = 4;

// cudaMemcpyDefault: the addresses say.
int direction(const void* to, const void* from, int kind) {
  if (kind != kByAddresses) return kind;
  if (memory().where(to).place != Place::gpu) return kToHost;
  return memory().where(from).place != Place::gpu ? kToGpu : kPeerCopy;
}

// What is copied where; of the host's memory, whether it is pinned.
void copy_enqueued(const void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  if (!record().writes()) {
    enqueue(Work::copy, stream, "%s", "");
    return;
  }
  const int way = direction(to, from, kind);
  constexpr const char* kPlaces[] = {"elsewhere", "card", "pinned"};
  const Place host = way == kToGpu    ? memory().where(from).place
                     : way == kToHost ? memory().where(to).place
                                      : Place::gpu;
  enqueue(Work::copy, stream, "%d %zu %s", way, bytes, kPlaces[static_cast<std::size_t>(host)]);
}

void copied(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  copy_enqueued(to, from, bytes, kind, stream);
  copy_values(to, from, bytes);
}

void filled(void* to, int value, std::size_t bytes, void* stream) {
  enqueue(Work::memset, stream, "%zu", bytes);
  if (to != nullptr && bytes <= kMostCopied) std::memset(to, value, bytes);
}

constexpr std::size_t kSymbolBytes = std::size_t{1} << 20;

}  // namespace

extern "C" {

int cudaMalloc(void** address, std::size_t bytes) {
  *address = nullptr;
  if (bytes == 0) return kSuccess;
  *address = memory().allocate(current_device(), bytes);
  return *address == nullptr ? failed(kOutOfMemory) : kSuccess;
}
int cudaFree(void* address) {
  if (address == nullptr) return kSuccess;
  note_on_stream("sync", Streams::kDefault, "device");
  streams().synchronize();
  return memory().free(address) ? kSuccess : failed(kInvalidValue);
}
int cudaMallocAsync(void** address, std::size_t bytes, void*) { return cudaMalloc(address, bytes); }
int cudaFreeAsync(void* address, void*) { return cudaFree(address); }
// Managed memory leaves the GPU when something else needs room there, so that it counts for
// nothing (bitsandbytes' paged optimizers).
int cudaMallocManaged(void** address, std::size_t bytes, unsigned) {
  *address = memory().reserve_addresses(current_device(), bytes);
  return *address == nullptr ? failed(kOutOfMemory) : kSuccess;
}
int cudaMemPrefetchAsync(...) { return kSuccess; }
int cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  *address = memory().allocate_pinned(bytes);
  return *address == nullptr ? failed(kOutOfMemory) : kSuccess;
}
int cudaMallocHost(void** address, std::size_t bytes) { return cudaHostAlloc(address, bytes, 0); }
int cudaFreeHost(void* address) {
  if (address != nullptr) memory().free_pinned(address);
  return kSuccess;
}
int cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  memory().pin(address, bytes);
  return kSuccess;
}
int cudaHostUnregister(void* address) {
  return memory().unpin(address) ? kSuccess : failed(kInvalidValue);
}
int cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return kSuccess;
}
int cudaPointerGetAttributes(PointerAttributes* attributes, const void* address) {
  const Where where = memory().where(address);
  void* const plain = const_cast<void*>(address);
  switch (where.place) {
    case Place::gpu:
      *attributes = {2, where.device, plain, nullptr};
      break;
    case Place::pinned:
      *attributes = {1, current_device(), plain, plain};
      break;
    case Place::elsewhere:
      *attributes = {0, -2, nullptr, nullptr};
      break;
  }
  return kSuccess;
}

int cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  copied(to, from, bytes, kind, nullptr);
  note_on_stream("sync", Streams::kDefault, "stream");
  streams().synchronize(Streams::kDefault);
  return kSuccess;
}
int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* stream) {
  copied(to, from, bytes, kind, stream);
  return kSuccess;
}
int cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, void* stream) {
  copied(to, from, bytes, kPeerCopy, stream);
  return kSuccess;
}
int cudaMemcpy2DAsync(void* to,
                      std::size_t to_pitch,
                      const void* from,
                      std::size_t from_pitch,
                      std::size_t width,
                      std::size_t height,
                      int kind,
                      void* stream) {
  copy_enqueued(to, from, width * height, kind, stream);
  if (width * height > kMostCopied) return kSuccess;
  for (std::size_t row = 0; row < height; ++row) {
    copy_values(static_cast<char*>(to) + row * to_pitch,
                static_cast<const char*>(from) + row * from_pitch,
                width);
  }
  return kSuccess;
}
int cudaMemset(void* to, int value, std::size_t bytes) {
  filled(to, value, bytes, nullptr);
  return kSuccess;
}
int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) {
  filled(to, value, bytes, stream);
  return kSuccess;
}

// A variable of the GPU: some place that can be written to.
int cudaGetSymbolAddress(void** address, const void*) {
  static void* const area = map_address_space(kSymbolBytes);
  *address = area;
  return kSuccess;
}
int cudaDeviceGetDefaultMemPool(void** pool, int) {
  static char only_pool;
  *pool = &only_pool;
  return kSuccess;
}
int cudaMemPoolGetAttribute(void*, int, void* value) {
  const std::uint64_t zero = 0;
  std::memcpy(value, &zero, sizeof zero);
  return kSuccess;
}
}
