// A replica of PyTorch's caching allocator for page-locked host memory: what Tensor.pin_memory()
// and empty(pin_memory=True) really pin.
//
// A request becomes a whole block of the next power of two, 1.1 GiB pin 2 GiB; blocks are never
// split or joined, and what was pinned stays pinned until the cache is emptied. Non-blocking copies
// record their stream; a block freed after such a copy is cached again when the copy is done.
// Value type, deterministic, and called at the moment the host calls, as CachingAllocator.
//
// Units: Bytes. Errors: ZP_CHECK for misuse. Left out: running out of host memory (the caller holds
// stats().reserved against it), background threads, registered memory.
// Source: aten/src/ATen/cuda/CachingHostAllocator.cpp (until torch 2.5),
// aten/src/ATen/core/CachingHostAllocator.h (since 2.6: CachingHostAllocatorImpl).
// Checked by tests/simulator/pinned_allocator_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/software.hpp"
#include "model/units.hpp"
#include "simulator/allocator_stats.hpp"
#include "simulator/stream_clock.hpp"

namespace zeroplan {

// A handle of a pinned block, from allocate() until free(). Handles are reused.
using PinnedId = std::int32_t;
inline constexpr PinnedId kNoPinned = -1;

enum class PinnedReuse : std::uint8_t {
  best_fit,  // until torch 2.5: the smallest cached block that is large enough, the oldest address
  bucket,    // since torch 2.6: the last one freed among those of the same power of two
};

struct PinnedOptions {
  PinnedReuse reuse = PinnedReuse::bucket;
  // pinned_max_round_threshold_mb of the newest releases: larger requests are not rounded up.
  Bytes largest_rounded = Bytes::infinite();
  // pinned_max_cached_size_mb of the newest releases: larger requests are not rounded up, and are
  // given back when they are freed.
  Bytes largest_cached = Bytes::infinite();

  static PinnedOptions of(const Version& torch);
};

// What torch.cuda.host_memory_stats() reports (since torch 2.7).
struct PinnedStats {
  AllocatorStat allocation;       // tensors alive, or waiting for events
  AllocatorStat allocated_bytes;  // their blocks; torch's peak is a sum of peaks, this one is exact
  AllocatorStat segment;          // blocks pinned
  AllocatorStat reserved_bytes;   // page-locked memory of the process
};

class PinnedAllocator {
 public:
  explicit PinnedAllocator(const PinnedOptions& options = {}) : options_(options) {}

  // Size 0 allocates nothing. Source: CachingHostAllocatorImpl::allocate.
  PinnedId allocate(Bytes size, StreamClocks clocks);
  // A non-blocking copy from or to the tensor was queued on the stream. Source: record_event.
  void record_event(PinnedId block, StreamId stream);
  // Source: CachingHostAllocatorImpl::free.
  void free(PinnedId block, StreamClocks clocks);
  // torch._C._host_emptyCache(): unpins every cached block. Source: empty_cache.
  void empty_cache(StreamClocks clocks);

  const PinnedStats& stats() const { return stats_; }
  Bytes size(PinnedId block) const;  // what is pinned for it

 private:
  struct Block {
    std::int64_t size = 0;
    std::int64_t serial = 0;  // order of creation, which stands for the address
    std::uint64_t stream_uses = 0;
    std::uint8_t events = 0;
    bool is_allocated = false;
    bool is_cached_when_free = true;
  };
  struct Event {
    std::int64_t ticket = 0;
    StreamId stream = 0;
    PinnedId block = kNoPinned;
  };

  std::int64_t rounded(std::int64_t size) const;
  PinnedId take_cached(std::int64_t size);
  void process_events(StreamClocks clocks);
  void make_free(PinnedId id);
  void unpin(PinnedId id);

  PinnedOptions options_;
  std::vector<Block> blocks_;
  std::vector<PinnedId> unused_;
  std::array<std::vector<PinnedId>, 64> buckets_;  // of free blocks, by ceil(log2(size))
  std::vector<Event> events_;  // of all streams, oldest first, from first_event_ on
  std::size_t first_event_ = 0;
  std::int64_t serial_ = 0;
  PinnedStats stats_;
};

}  // namespace zeroplan
