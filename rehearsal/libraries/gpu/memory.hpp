// The GPU's memory, counted; and pinned memory of the host.
//
// What is allocated is address space of this machine that costs nothing until it is touched, so
// that small tensors can hold true values. What counts against the GPU is what the driver would
// take: whole pages of 2 MiB, below 1 MiB whole units of 512 bytes (PyTorch asks for 2 MiB at
// least). Thread-safe. Units: bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace zeroplan::gpu {

// What an allocation of so many bytes takes of the GPU.
std::size_t taken_by(std::size_t bytes);

// Readable and writable address space at a multiple of 2 MiB; null where the kernel has none.
void* map_address_space(std::size_t bytes);
void unmap_address_space(void* address, std::size_t bytes);

enum class Place { elsewhere, gpu, pinned };

struct Where {
  Place place = Place::elsewhere;
  int device = -1;
};

struct GpuUse {
  std::size_t used = 0;  // the context not among it
  std::size_t peak = 0;
  std::size_t allocations = 0;
  std::size_t frees = 0;
  std::size_t refused = 0;
};

struct PinnedUse {
  std::size_t used = 0;
  std::size_t peak = 0;
};

class Memory {
 public:
  // `total` of each of the devices, of which `context` is gone beforehand.
  Memory(std::size_t total, std::size_t context, int devices);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Null where the GPU has not so much left, or the kernel no address space.
  void* allocate(int device, std::size_t bytes);
  bool free(void* address);  // false: not one of these

  // The GPU's memory without addresses, for the driver's virtual memory (expandable segments).
  bool take(int device, std::size_t bytes);
  void give_back(int device, std::size_t bytes);
  // Addresses of the GPU to which such memory is mapped.
  void* reserve_addresses(int device, std::size_t bytes);
  bool release_addresses(void* address);

  void* allocate_pinned(std::size_t bytes);
  bool free_pinned(void* address);
  // Memory that the program has already.
  void pin(void* address, std::size_t bytes);
  bool unpin(void* address);
  // By mlock: it counts as pinned, but CUDA does not know of it.
  void lock(std::size_t bytes);
  void unlock(std::size_t bytes);

  Where where(const void* address) const;
  std::size_t total() const { return total_; }
  std::size_t free_bytes(int device) const;
  GpuUse use(int device) const;
  PinnedUse pinned() const;

 private:
  struct Range {
    std::size_t bytes = 0;
    int device = -1;       // -1: of the host
    bool counted = false;  // against the GPU's memory when it is freed
    bool ours = false;     // to be unmapped
  };
  using Ranges = std::map<std::uintptr_t, Range>;

  bool take_locked(int device, std::size_t bytes);
  void* keep(const Range& range);
  bool forget(void* address, bool of_gpu);
  void count_pinned(std::size_t bytes);

  mutable std::mutex mutex_;
  std::size_t total_;
  std::size_t context_;
  std::vector<GpuUse> gpus_;
  PinnedUse pinned_;
  Ranges ranges_;
};

// The process's own.
Memory& memory();

}  // namespace zeroplan::gpu
