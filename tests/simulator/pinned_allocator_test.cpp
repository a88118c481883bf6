// Page-locked host memory, rule by rule. Symbols in comments are of
// aten/src/ATen/core/CachingHostAllocator.h.
#include "simulator/pinned_allocator.hpp"

#include <map>
#include <random>

#include "tests/catch.hpp"

using namespace zeroplan;

// CachingHostAllocatorImpl::allocate, PowerOf2Ceil
TEST_CASE("a pinned tensor pins the next power of two") {
  PinnedAllocator allocator;
  const PinnedId block = allocator.allocate(Bytes::mib(1127), {});  // 1.1 GiB
  CHECK(allocator.size(block) == 2_GiB);
  CHECK(allocator.size(allocator.allocate(1_GiB, {})) == 1_GiB);
  CHECK(allocator.size(allocator.allocate(1_B, {})) == 1_B);
  CHECK(allocator.allocate(0_B, {}) == kNoPinned);
  CHECK(allocator.stats().reserved_bytes.current == (3LL << 30) + 1);
}

// free: no stream recorded
TEST_CASE("a pinned block without a copy in flight is reused at once and never unpinned") {
  PinnedAllocator allocator;
  allocator.free(allocator.allocate(Bytes::mib(5), {}), {});
  CHECK(allocator.stats().allocated_bytes.current == 0);
  CHECK(allocator.stats().reserved_bytes.current == 8 << 20);
  allocator.allocate(Bytes::mib(7), {});
  CHECK(allocator.stats().segment.current == 1);
  CHECK(allocator.stats().reserved_bytes.current == 8 << 20);
}

// get_free_block: only the exact bucket since torch 2.6; any larger block before
TEST_CASE("a smaller request takes a larger pinned block until torch 2.5, and not since 2.6") {
  for (const Version torch : {Version{1, 13}, Version{2, 5}, Version{2, 6}}) {
    PinnedAllocator allocator(PinnedOptions::of(torch));
    allocator.free(allocator.allocate(64_MiB, {}), {});
    allocator.free(allocator.allocate(256_MiB, {}), {});
    const PinnedId block = allocator.allocate(1_MiB, {});
    const bool reuses = torch < Version{2, 6};
    CHECK(allocator.size(block) == (reuses ? 64_MiB : 1_MiB));
    CHECK(allocator.stats().segment.current == (reuses ? 2 : 3));
  }
}

// record_event, free, process_events
TEST_CASE("a pinned block with a copy in flight is reused when the copy is done") {
  PinnedAllocator allocator;
  std::vector<StreamClock> clocks(2);
  clocks[1].queued = 5;
  const PinnedId block = allocator.allocate(4_MiB, clocks);
  allocator.record_event(block, 1);
  allocator.free(block, clocks);
  CHECK(allocator.stats().allocated_bytes.current == 4 << 20);
  clocks[1].completed = 4;
  allocator.allocate(4_MiB, clocks);
  CHECK(allocator.stats().segment.current == 2);
  clocks[1].completed = 5;
  allocator.allocate(4_MiB, clocks);
  CHECK(allocator.stats().segment.current == 2);
}

// process_events_for_specific_size(-1): one queue for all streams
TEST_CASE("the oldest copy in flight holds up pinned blocks of other streams") {
  PinnedAllocator allocator;
  std::vector<StreamClock> clocks(3);
  clocks[1].queued = clocks[2].queued = 1;
  const PinnedId slow = allocator.allocate(4_MiB, clocks);
  const PinnedId fast = allocator.allocate(8_MiB, clocks);
  allocator.record_event(slow, 1);
  allocator.record_event(fast, 2);
  allocator.free(slow, clocks);
  allocator.free(fast, clocks);
  clocks[2].completed = 1;
  allocator.allocate(8_MiB, clocks);
  CHECK(allocator.stats().segment.current == 3);
  clocks[1].completed = 1;
  allocator.allocate(8_MiB, clocks);
  CHECK(allocator.stats().segment.current == 3);
}

// empty_cache
TEST_CASE("emptying the cache unpins what is free and complete") {
  PinnedAllocator allocator;
  std::vector<StreamClock> clocks(2);
  clocks[1].queued = 1;
  const PinnedId kept = allocator.allocate(1_MiB, clocks);
  const PinnedId waiting = allocator.allocate(2_MiB, clocks);
  allocator.record_event(waiting, 1);
  allocator.free(waiting, clocks);
  allocator.free(allocator.allocate(4_MiB, clocks), clocks);
  allocator.empty_cache(clocks);
  CHECK(allocator.stats().reserved_bytes.current == 3 << 20);
  clocks[1].completed = 1;
  allocator.empty_cache(clocks);
  CHECK(allocator.stats().reserved_bytes.current == 1 << 20);
  allocator.free(kept, clocks);
  allocator.empty_cache(clocks);
  CHECK(allocator.stats().reserved_bytes.current == 0);
  CHECK(allocator.stats().reserved_bytes.peak == 7 << 20);
}

TEST_CASE("above the thresholds of the newest releases pinned sizes are exact, and not cached") {
  PinnedOptions options;
  options.largest_rounded = 100_MiB;
  options.largest_cached = 400_MiB;
  PinnedAllocator allocator(options);
  CHECK(allocator.size(allocator.allocate(90_MiB, {})) == 128_MiB);
  const PinnedId exact = allocator.allocate(150_MiB, {});
  CHECK(allocator.size(exact) == 150_MiB);
  allocator.free(exact, {});
  // The same bucket, but too small: not handed out.
  CHECK(allocator.size(allocator.allocate(200_MiB, {})) == 200_MiB);
  CHECK(allocator.size(allocator.allocate(140_MiB, {})) == 150_MiB);
  const std::int64_t before = allocator.stats().reserved_bytes.current;
  allocator.free(allocator.allocate(500_MiB, {}), {});
  CHECK(allocator.stats().reserved_bytes.current == before);
}

TEST_CASE("random pinned traces: what is pinned is what the free and used blocks sum to") {
  std::mt19937 random(4);
  for (const PinnedReuse reuse : {PinnedReuse::best_fit, PinnedReuse::bucket}) {
    PinnedOptions options;
    options.reuse = reuse;
    PinnedAllocator allocator(options);
    std::vector<StreamClock> clocks(3);
    std::map<PinnedId, std::int64_t> alive;
    for (int i = 0; i < 4000; ++i) {
      for (StreamClock& clock : clocks) {
        clock.queued += static_cast<std::int64_t>(random() % 2);
        if (random() % 3 == 0) clock.completed = clock.queued;
      }
      if (alive.empty() || random() % 2 == 0) {
        const auto size = 1 + static_cast<std::int64_t>(random() % (1u << (random() % 24)));
        const PinnedId id = allocator.allocate(Bytes::of(size), clocks);
        const std::int64_t got = allocator.size(id).count();
        CHECK(got >= size);
        CHECK((got & (got - 1)) == 0);
        if (reuse == PinnedReuse::bucket) CHECK(got < 2 * size);
        CHECK(alive.emplace(id, got).second);
      } else {
        const auto it =
            std::next(alive.begin(), static_cast<std::ptrdiff_t>(random() % alive.size()));
        if (random() % 2 == 0)
          allocator.record_event(it->first, static_cast<StreamId>(random() % 3));
        allocator.free(it->first, clocks);
        alive.erase(it);
      }
      std::int64_t held = 0;
      for (const auto& [id, size] : alive) held += size;
      const PinnedStats& stats = allocator.stats();
      CHECK(stats.allocated_bytes.current >= held);
      CHECK(stats.allocated_bytes.current <= stats.reserved_bytes.current);
      CHECK(stats.reserved_bytes.current == stats.reserved_bytes.peak);
    }
    for (const auto& [id, size] : alive) allocator.free(id, clocks);
    for (StreamClock& clock : clocks) clock.completed = clock.queued;
    allocator.empty_cache(clocks);
    CHECK(allocator.stats().reserved_bytes.current == 0);
    CHECK(allocator.stats().allocation.current == 0);
  }
}

TEST_CASE("using a pinned block that is not allocated is noticed") {
  PinnedAllocator allocator;
  const PinnedId block = allocator.allocate(1_MiB, {});
  allocator.free(block, {});
  CHECK_THROWS_AS(allocator.free(block, {}), std::logic_error);
  CHECK_THROWS_AS(allocator.record_event(block, 1), std::logic_error);
}
