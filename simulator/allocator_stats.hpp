// What torch.cuda.memory_stats() reports, and what a CUDA out-of-memory error says.
//
// Units: bytes and counts as int64, as PyTorch counts them. Sources:
// c10/core/CachingDeviceAllocator.h (DeviceStats), c10/cuda/CUDACachingAllocator.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/units.hpp"

namespace zeroplan::simulator {

// "current", "peak", "allocated" and "freed" of memory_stats. Peaks are exact: every increase
// updates them. Source: increase_stat, decrease_stat.
struct AllocatorStat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;

  void increase(std::int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void decrease(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }
  void change(std::int64_t amount) { amount >= 0 ? increase(amount) : decrease(-amount); }
  friend bool operator==(const AllocatorStat&, const AllocatorStat&) = default;
};

// "all", "small_pool" and "large_pool" of memory_stats.
enum class StatPool { all, small_pool, large_pool };
inline constexpr std::size_t kStatPools = 3;

// The statistics that exist for each pool, under their names in memory_stats.
struct PoolStats {
  AllocatorStat allocation;       // tensors
  AllocatorStat segment;          // cudaMalloc calls alive; expandable segments do not count
  AllocatorStat active;           // blocks allocated or waiting for an event
  AllocatorStat inactive_split;   // free blocks whose segment is partly in use
  AllocatorStat allocated_bytes;  // torch.cuda.memory_allocated: sizes of blocks
  AllocatorStat reserved_bytes;   // torch.cuda.memory_reserved
  AllocatorStat active_bytes;
  AllocatorStat inactive_split_bytes;  // expandable segments do not count
  AllocatorStat requested_bytes;       // before rounding
  friend bool operator==(const PoolStats&, const PoolStats&) = default;
};

struct MemoryStats {
  std::array<PoolStats, kStatPools> pools;
  AllocatorStat oversize_allocations;  // of max_split_size and above
  AllocatorStat oversize_segments;
  std::int64_t num_alloc_retries = 0;  // flushes because a device allocation failed
  std::int64_t num_ooms = 0;
  std::int64_t num_sync_all_streams = 0;  // waits for all recorded events: retries, empty_cache
  std::int64_t num_device_alloc = 0;      // cudaMalloc, or a mapping
  std::int64_t num_device_free = 0;       // cudaFree, or an unmapping

  const PoolStats& of(StatPool pool) const { return pools[static_cast<std::size_t>(pool)]; }
  const PoolStats& all() const { return of(StatPool::all); }
  Bytes allocated() const { return Bytes::of(all().allocated_bytes.current); }
  Bytes peak_allocated() const { return Bytes::of(all().allocated_bytes.peak); }
  Bytes reserved() const { return Bytes::of(all().reserved_bytes.current); }
  Bytes peak_reserved() const { return Bytes::of(all().reserved_bytes.peak); }

  // torch.cuda.reset_peak_memory_stats: peaks become what is there now.
  void reset_peaks();
  // Counters grow by `times` what they grew between two moments that had the same memory.
  void repeat(const MemoryStats& from, const MemoryStats& to, std::int64_t times);
  // torch.cuda.reset_accumulated_memory_stats: allocated, freed and the counters begin at zero.
  void reset_accumulated();

  friend bool operator==(const MemoryStats&, const MemoryStats&) = default;
};

// The numbers of torch.OutOfMemoryError. The message calls `tried` what it tried to allocate: the
// segment, not the tensor. Until torch 2.0 its "reserved" is `reserved`; since 2.1 it prints
// reserved - allocated as "reserved by PyTorch but unallocated".
struct OutOfMemory {
  Bytes tried;      // of cudaMalloc: segment_size()
  Bytes requested;  // by the tensor
  Bytes total;      // of the device
  Bytes free;       // of the device, after the flush
  Bytes allowed;    // infinite: no memory fraction set
  Bytes allocated;
  Bytes reserved;
};

}  // namespace zeroplan::simulator
