// What can be read of the allocator: statistics, snapshots, its history. Symbols in comments are of
// c10/cuda/CUDACachingAllocator.cpp.
#include <vector>

#include "simulator/allocator.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

simulator::BlockId get(simulator::CachingAllocator& allocator,
                       Bytes size,
                       simulator::StreamId stream = 0,
                       std::uint64_t tag = 0) {
  return allocator.allocate({size, stream, tag}, {}).block;
}

}  // namespace

// increase_stat, decrease_stat
TEST_CASE("peaks are exact and totals accumulate") {
  simulator::CachingAllocator allocator;
  allocator.free(get(allocator, 30_MiB), {});
  allocator.free(get(allocator, 30_MiB), {});
  const simulator::AllocatorStat stat = allocator.stats().all().allocated_bytes;
  CHECK(stat == simulator::AllocatorStat{0, 30 << 20, 60 << 20, 60 << 20});
  CHECK(allocator.stats().peak_allocated() == 30_MiB);
  CHECK(allocator.stats().peak_reserved() == 30_MiB);
}

// resetPeakStats, resetAccumulatedStats
TEST_CASE("resetting peaks makes them what is there, resetting totals makes them zero") {
  simulator::CachingAllocator allocator;
  const simulator::BlockId kept = get(allocator, 10_MiB);
  allocator.free(get(allocator, 30_MiB), {});
  allocator.reset_peaks();
  CHECK(allocator.stats().all().allocated_bytes.peak == 10 << 20);
  CHECK(allocator.stats().all().allocation.peak == 1);
  CHECK(allocator.stats().all().reserved_bytes.peak == 40 << 20);
  CHECK(allocator.stats().num_device_alloc == 2);
  allocator.reset_accumulated();
  CHECK(allocator.stats().all().allocated_bytes ==
        simulator::AllocatorStat{10 << 20, 10 << 20, 0, 0});
  CHECK(allocator.stats().num_device_alloc == 0);
  allocator.free(kept, {});
  CHECK(allocator.stats().all().allocated_bytes.freed == 10 << 20);
}

// get_stat_types_for_pool
TEST_CASE("each pool has statistics of its own, and both together") {
  simulator::CachingAllocator allocator;
  get(allocator, 1000_B);
  get(allocator, 3_MiB);
  const simulator::MemoryStats& stats = allocator.stats();
  CHECK(stats.of(simulator::StatPool::small_pool).allocated_bytes.current == 1024);
  CHECK(stats.of(simulator::StatPool::large_pool).allocated_bytes.current == 3 << 20);
  CHECK(stats.all().allocated_bytes.current == (3 << 20) + 1024);
  CHECK(stats.of(simulator::StatPool::small_pool).requested_bytes.current == 1000);
  CHECK(stats.of(simulator::StatPool::small_pool).inactive_split_bytes.current == (2 << 20) - 1024);
}

// snapshot
TEST_CASE("a snapshot shows segments and their blocks by address") {
  simulator::CachingAllocator allocator;
  std::vector<simulator::StreamClock> clocks(2);
  clocks[1].queued = 1;
  get(allocator, 3_MiB, 0, 11);
  const simulator::BlockId waiting = get(allocator, 4_MiB, 0, 12);
  get(allocator, 1000_B, 1, 13);
  allocator.record_stream(waiting, 1);
  allocator.free(waiting, clocks);
  const std::vector<simulator::SegmentSnapshot> segments = allocator.snapshot();
  REQUIRE(segments.size() == 2);
  CHECK(segments[1].total_size == 20_MiB);
  CHECK(segments[1].is_large);
  CHECK(segments[1].stream == 0);
  REQUIRE(segments[1].blocks.size() == 3);
  CHECK(segments[1].blocks[0].state == simulator::BlockState::allocated);
  CHECK(segments[1].blocks[0].tag == 11);
  CHECK(segments[1].blocks[1].state == simulator::BlockState::awaiting_events);
  CHECK(segments[1].blocks[1].tag == 12);
  CHECK(segments[1].blocks[1].address == segments[1].address + (3 << 20));
  CHECK(segments[1].blocks[2].state == simulator::BlockState::free);
  CHECK(segments[1].blocks[2].size == 13_MiB);
  CHECK_FALSE(segments[0].is_large);
  CHECK(segments[0].stream == 1);
  CHECK(segments[0].blocks[0].requested == 1000_B);
  CHECK(segments[0].blocks[0].size == 1_KiB);
}

// snapshot: expandable segments
TEST_CASE("a snapshot shows each mapped range of an expandable segment as a segment") {
  simulator::AllocatorOptions options;
  options.expandable_segments = true;
  options.device_total = 1_GiB;
  simulator::CachingAllocator allocator(options);
  const simulator::BlockId low = get(allocator, 20_MiB);
  const simulator::BlockId middle = get(allocator, 20_MiB);
  get(allocator, 20_MiB);
  CHECK(allocator.snapshot().size() == 1);
  CHECK(allocator.snapshot()[0].total_size == 60_MiB);
  allocator.free(middle, {});
  CHECK(allocator.empty_cache({}));
  const std::vector<simulator::SegmentSnapshot> segments = allocator.snapshot();
  REQUIRE(segments.size() == 2);
  CHECK(segments[0].is_expandable);
  CHECK(segments[0].address == allocator.address(low));
  CHECK(segments[1].address == segments[0].address + (40 << 20));
}

// record_trace
TEST_CASE("the history has the entries of PyTorch's, in their order") {
  simulator::CachingAllocator allocator;
  std::vector<simulator::StreamClock> clocks(2);
  std::vector<simulator::AllocatorEvent> events;
  allocator.record_events(&events);
  clocks[1].queued = 1;
  const simulator::BlockId block = allocator.allocate({3_MiB, 0, 7}, clocks).block;
  const std::int64_t address = allocator.address(block);
  allocator.record_stream(block, 1);
  allocator.free(block, clocks);
  clocks[1].completed = 1;
  CHECK(allocator.empty_cache(clocks));
  allocator.record_events(nullptr);
  get(allocator, 1_MiB);
  REQUIRE(events.size() == 5);
  const simulator::AllocatorAction expected[] = {simulator::AllocatorAction::segment_alloc,
                                                 simulator::AllocatorAction::alloc,
                                                 simulator::AllocatorAction::free_requested,
                                                 simulator::AllocatorAction::free_completed,
                                                 simulator::AllocatorAction::segment_free};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(events[i].action == expected[i]);
    CHECK(events[i].address == address);
    CHECK(events[i].size == (i == 0 || i == 4 ? 20_MiB : 3_MiB));
    CHECK(events[i].tag == (i == 0 || i == 4 ? 0u : 7u));
  }
}

TEST_CASE("misuse of the allocator is noticed") {
  simulator::CachingAllocator allocator;
  const simulator::BlockId block = get(allocator, 1_MiB);
  allocator.free(block, {});
  CHECK_THROWS_AS(allocator.free(block, {}), std::logic_error);
  CHECK_THROWS_AS(allocator.record_stream(block, 1), std::logic_error);
  CHECK_THROWS_AS(allocator.size(12345), std::logic_error);
  CHECK_THROWS_AS(get(allocator, 1_MiB, 64), std::logic_error);
  CHECK_THROWS_AS(get(allocator, 1_MiB, -1), std::logic_error);
  CHECK_THROWS_AS(get(allocator, Bytes::of(-5)), std::logic_error);
}
