// PyTorch's caching allocator, rule by rule. Symbols in comments are of
// c10/cuda/CUDACachingAllocator.cpp.
#include <vector>

#include "simulator/allocator.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

using Clocks = std::vector<simulator::StreamClock>;

struct Rig {
  simulator::CachingAllocator allocator;
  Clocks clocks = Clocks(4);

  explicit Rig(const simulator::AllocatorOptions& options = {}) : allocator(options) {}
  Rig(Bytes capacity, simulator::AllocatorOptions options) : allocator(with(capacity, options)) {}

  static simulator::AllocatorOptions with(Bytes capacity, simulator::AllocatorOptions options) {
    options.device_total = capacity;
    options.available = capacity;
    return options;
  }

  simulator::BlockId get(Bytes size, simulator::StreamId stream = 0) {
    const simulator::Allocation got = allocator.allocate({.size = size, .stream = stream}, clocks);
    REQUIRE(got.outcome == simulator::AllocationOutcome::allocated);
    return got.block;
  }
  simulator::AllocationOutcome attempt(Bytes size, simulator::StreamId stream = 0) {
    return allocator.allocate({.size = size, .stream = stream}, clocks).outcome;
  }
  void drop(simulator::BlockId block) { allocator.free(block, clocks); }
  // Work is queued on the stream, and stays incomplete until finish().
  void busy(simulator::StreamId stream) { ++clocks[static_cast<std::size_t>(stream)].queued; }
  void finish(simulator::StreamId stream) {
    simulator::StreamClock& clock = clocks[static_cast<std::size_t>(stream)];
    clock.completed = clock.queued;
  }

  const simulator::PoolStats& all() const { return allocator.stats().all(); }
  std::int64_t reserved_mib() const { return all().reserved_bytes.current >> 20; }
  std::int64_t segments() const { return all().segment.current; }
};

simulator::AllocatorOptions expandable() {
  simulator::AllocatorOptions options;
  options.expandable_segments = true;
  return options;
}

}  // namespace

// NativeCachingAllocator::allocate
TEST_CASE("a tensor without elements allocates nothing") {
  Rig rig;
  CHECK(rig.get(0_B) == simulator::kNoBlock);
  rig.drop(simulator::kNoBlock);
  rig.allocator.record_stream(simulator::kNoBlock, 1);
  CHECK(rig.segments() == 0);
}

// get_pool
TEST_CASE("the rounded size decides the pool: up to 1 MiB is small") {
  Rig rig;
  rig.get(1_MiB);
  CHECK(rig.allocator.stats().of(simulator::StatPool::small_pool).segment.current == 1);
  CHECK(rig.reserved_mib() == 2);
  rig.get(1_MiB + 1_B);
  CHECK(rig.allocator.stats().of(simulator::StatPool::large_pool).segment.current == 1);
  CHECK(rig.reserved_mib() == 22);
}

// get_free_block, BlockComparatorSize
TEST_CASE("a request takes the smallest cached block that is large enough") {
  Rig rig;
  const simulator::BlockId large = rig.get(40_MiB);
  const simulator::BlockId fitting = rig.get(30_MiB);
  const simulator::BlockId small = rig.get(20_MiB);
  const std::int64_t address = rig.allocator.address(fitting);
  for (const simulator::BlockId block : {large, fitting, small}) rig.drop(block);
  CHECK(rig.allocator.address(rig.get(25_MiB)) == address);
}

// BlockComparatorSize
TEST_CASE("among cached blocks of one size the lowest address is taken") {
  Rig rig;
  std::vector<simulator::BlockId> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(rig.get(30_MiB));
  const std::int64_t lowest = rig.allocator.address(blocks[2]);  // made last
  rig.drop(blocks[2]);
  rig.drop(blocks[0]);
  rig.drop(blocks[1]);
  CHECK(rig.allocator.address(rig.get(30_MiB)) == lowest);
}

// BlockComparatorSizeCounterAddress of torch 2.12
TEST_CASE(
    "among cached blocks of one size that of the oldest segment is taken, where torch does so") {
  simulator::AllocatorOptions options;
  options.oldest_segment_first = true;
  Rig rig(options);
  std::vector<simulator::BlockId> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(rig.get(30_MiB));
  const std::int64_t oldest = rig.allocator.address(blocks[0]);
  const std::int64_t second = rig.allocator.address(blocks[1]);
  for (const int i : {1, 2, 0}) rig.drop(blocks[static_cast<std::size_t>(i)]);
  // Parts of a segment are as old as it is, the low part first.
  const simulator::BlockId low = rig.get(14_MiB);
  CHECK(rig.allocator.address(low) == oldest);
  CHECK(rig.allocator.address(rig.get(16_MiB)) == oldest + 14 * 1024 * 1024);
  CHECK(rig.allocator.address(rig.get(30_MiB)) == second);
  rig.allocator.check_invariants();
}

// BlockComparatorSize
TEST_CASE("a block freed on one stream is not found from another") {
  Rig rig;
  rig.drop(rig.get(30_MiB, 1));
  rig.get(30_MiB, 2);
  CHECK(rig.segments() == 2);
  rig.get(30_MiB, 1);
  CHECK(rig.segments() == 2);
}

// should_split
TEST_CASE("a large block is split when more than 1 MiB would remain, else all of it is charged") {
  Rig rig;
  const simulator::BlockId whole =
      rig.get(19_MiB);  // of a segment of 20 MiB: exactly 1 MiB would remain
  CHECK(rig.allocator.size(whole) == 20_MiB);
  CHECK(rig.all().allocated_bytes.current == 20 << 20);
  CHECK(rig.all().requested_bytes.current == 19 << 20);
  rig.drop(whole);
  const simulator::BlockId part = rig.get(19_MiB - 512_B);
  CHECK(rig.allocator.size(part) == 19_MiB - 512_B);
  CHECK(rig.all().inactive_split_bytes.current == (1 << 20) + 512);
}

// should_split
TEST_CASE("a small block is split down to 512 bytes") {
  Rig rig;
  const simulator::BlockId block = rig.get(1_MiB);
  rig.get(1_MiB - 512_B);
  CHECK(rig.all().inactive_split_bytes.current == 512);
  rig.get(512_B);
  CHECK(rig.all().inactive_split.current == 0);
  CHECK(rig.segments() == 1);
  rig.drop(block);
  CHECK(rig.all().inactive_split_bytes.current == 1 << 20);
}

// alloc_found_block
TEST_CASE("the low part of a split block is handed out") {
  Rig rig;
  const std::int64_t first = rig.allocator.address(rig.get(2_MiB));
  CHECK(rig.allocator.address(rig.get(3_MiB)) == first + (2 << 20));
}

// try_merge_blocks
TEST_CASE("a freed block joins its free neighbours on both sides") {
  Rig rig;
  std::vector<simulator::BlockId> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(rig.get(4_MiB));  // one segment of 20 MiB
  CHECK(rig.segments() == 1);
  rig.drop(blocks[1]);
  rig.drop(blocks[3]);
  CHECK(rig.all().inactive_split.current == 2);
  rig.drop(blocks[2]);
  CHECK(rig.all().inactive_split.current == 1);
  CHECK(rig.all().inactive_split_bytes.current == 12 << 20);
  rig.drop(blocks[0]);
  rig.drop(blocks[4]);
  CHECK(rig.all().inactive_split.current == 0);  // the segment is whole again
  CHECK(rig.all().reserved_bytes.current == 20 << 20);
}

// try_merge_blocks
TEST_CASE("segments side by side are never joined") {
  Rig rig;
  const simulator::BlockId a = rig.get(10_MiB);
  const simulator::BlockId b = rig.get(10_MiB);
  CHECK(rig.allocator.address(b) == rig.allocator.address(a) - (10 << 20));
  rig.drop(a);
  rig.drop(b);
  rig.get(20_MiB);
  CHECK(rig.segments() == 3);
}

// recordStream
TEST_CASE("uses on the stream of the allocation need no event") {
  Rig rig;
  const simulator::BlockId block = rig.get(30_MiB, 1);
  rig.busy(1);
  rig.allocator.record_stream(block, 1);
  rig.drop(block);
  CHECK(rig.all().active_bytes.current == 0);
}

// free, insert_events
TEST_CASE("a block used on another stream is no longer allocated but stays active until then") {
  Rig rig;
  const simulator::BlockId block = rig.get(30_MiB);
  rig.busy(1);
  rig.allocator.record_stream(block, 1);
  rig.drop(block);
  CHECK(rig.all().allocated_bytes.current == 0);
  CHECK(rig.all().allocation.current == 0);
  CHECK(rig.all().active_bytes.current == 30 << 20);
  CHECK(rig.all().requested_bytes.current == 30 << 20);
  rig.get(30_MiB);
  CHECK(rig.segments() == 2);
}

// process_events
TEST_CASE("complete events return their blocks at the next allocation of any size") {
  Rig rig;
  const simulator::BlockId block = rig.get(30_MiB);
  rig.busy(1);
  rig.allocator.record_stream(block, 1);
  rig.drop(block);
  rig.finish(1);
  CHECK(rig.all().active_bytes.current == 30 << 20);
  rig.get(512_B, 2);
  CHECK(rig.all().active_bytes.current == 512);
  rig.get(30_MiB);
  CHECK(rig.reserved_mib() == 32);
}

// insert_events
TEST_CASE("an event stands for what was queued when the block was freed, not when it was used") {
  Rig rig;
  const simulator::BlockId block = rig.get(30_MiB);
  rig.busy(1);
  rig.allocator.record_stream(block, 1);
  rig.finish(1);
  rig.busy(1);  // other work, after the use
  rig.drop(block);
  rig.get(30_MiB);
  CHECK(rig.segments() == 2);
  // What is queued later does not count.
  rig.clocks[1].completed = rig.clocks[1].queued;
  rig.busy(1);
  rig.get(30_MiB);
  CHECK(rig.segments() == 2);
}

// insert_events, event_count
TEST_CASE("a block used on two other streams waits for both") {
  Rig rig;
  const simulator::BlockId block = rig.get(30_MiB);
  rig.busy(1);
  rig.busy(2);
  rig.allocator.record_stream(block, 1);
  rig.allocator.record_stream(block, 2);
  rig.allocator.record_stream(block, 2);
  rig.drop(block);
  rig.finish(1);
  rig.get(512_B);
  CHECK(rig.allocator.stats().of(simulator::StatPool::large_pool).active.current == 1);
  rig.finish(2);
  rig.get(512_B);
  CHECK(rig.allocator.stats().of(simulator::StatPool::large_pool).active.current == 0);
}

// process_events: a queue a stream
TEST_CASE("a slow stream does not hold up the events of others") {
  Rig rig;
  const simulator::BlockId slow = rig.get(30_MiB);
  const simulator::BlockId fast = rig.get(40_MiB);
  rig.busy(1);
  rig.busy(2);
  rig.allocator.record_stream(slow, 1);
  rig.allocator.record_stream(fast, 2);
  rig.drop(slow);
  rig.drop(fast);
  rig.finish(2);
  rig.get(512_B);
  CHECK(rig.allocator.stats().of(simulator::StatPool::large_pool).active_bytes.current == 30 << 20);
}

// try_merge_blocks: event_count > 0
TEST_CASE("a waiting block is not joined by its neighbours") {
  Rig rig;
  const simulator::BlockId a = rig.get(4_MiB);
  const simulator::BlockId b = rig.get(4_MiB);
  rig.busy(1);
  rig.allocator.record_stream(a, 1);
  rig.drop(a);
  rig.drop(b);
  CHECK(rig.all().inactive_split_bytes.current == 16 << 20);
  rig.finish(1);
  rig.get(20_MiB);
  CHECK(rig.segments() == 1);
}

// alloc_block, release_cached_blocks
TEST_CASE(
    "when the device is full, segments without a tensor go back and the request is tried again") {
  Rig rig(100_MiB, {});
  rig.drop(rig.get(30_MiB));
  rig.drop(rig.get(40_MiB));
  const simulator::BlockId kept = rig.get(2_MiB);  // splits the cached 30 MiB
  CHECK(rig.reserved_mib() == 70);
  rig.get(60_MiB);
  CHECK(rig.allocator.stats().num_alloc_retries == 1);
  CHECK(rig.allocator.stats().num_device_free == 1);
  CHECK(rig.reserved_mib() == 90);  // 30 stay for 2
  CHECK(rig.allocator.stats().peak_reserved() == 90_MiB);
  rig.drop(kept);
}

// synchronize_and_free_events
TEST_CASE("before a flush the host waits for every event, and waiting blocks are flushed too") {
  Rig rig(100_MiB, {});
  const simulator::BlockId block = rig.get(60_MiB);
  rig.busy(1);
  rig.allocator.record_stream(block, 1);
  rig.drop(block);
  simulator::Allocation got = rig.allocator.allocate({.size = 80_MiB}, rig.clocks);
  REQUIRE(got.outcome == simulator::AllocationOutcome::must_synchronize);
  CHECK_FALSE(rig.allocator.events_complete(rig.clocks));
  CHECK(rig.allocator.awaited(1) == rig.clocks[1].queued);
  CHECK(rig.allocator.stats().num_alloc_retries == 0);
  CHECK_THROWS_AS(rig.attempt(1_MiB), std::logic_error);
  CHECK_THROWS_AS(rig.allocator.continue_allocation(rig.clocks), std::logic_error);
  rig.finish(1);
  got = rig.allocator.continue_allocation(rig.clocks);
  CHECK(got.outcome == simulator::AllocationOutcome::allocated);
  CHECK(rig.allocator.stats().num_alloc_retries == 1);
  CHECK(rig.allocator.stats().num_sync_all_streams == 1);
  CHECK(rig.reserved_mib() == 80);
}

// malloc, from num_ooms on
TEST_CASE(
    "running out of memory names the segment that was tried, and leaves the allocator usable") {
  Rig rig(100_MiB, {});
  rig.get(61_MiB);
  rig.get(3_MiB);
  CHECK(rig.attempt(21_MiB) == simulator::AllocationOutcome::out_of_memory);
  const simulator::OutOfMemory& error = rig.allocator.out_of_memory();
  CHECK(error.tried == 22_MiB);
  CHECK(error.requested == 21_MiB);
  CHECK(error.total == 100_MiB);
  CHECK(error.free == 18_MiB);
  CHECK(error.allowed.is_infinite());
  CHECK(error.allocated == 65_MiB);  // 61 of 62 are not split
  CHECK(error.reserved == 82_MiB);
  CHECK(rig.allocator.stats().num_ooms == 1);
  CHECK(rig.attempt(15_MiB) == simulator::AllocationOutcome::allocated);
}

// alloc_block: total_allocated_memory + size > allowed_memory_maximum
TEST_CASE("a memory fraction limits segments, not tensors") {
  simulator::AllocatorOptions options;
  options.allowed = 19_MiB;
  Rig rig(1_GiB, options);
  CHECK(rig.attempt(2_MiB) == simulator::AllocationOutcome::out_of_memory);  // wants 20 MiB
  CHECK(rig.attempt(18_MiB) == simulator::AllocationOutcome::allocated);
  CHECK(rig.attempt(512_B) == simulator::AllocationOutcome::out_of_memory);  // wants 2 MiB
}

TEST_CASE("what the process can have of the device may change") {
  Rig rig(100_MiB, {});
  rig.allocator.set_available(50_MiB);
  CHECK(rig.attempt(60_MiB) == simulator::AllocationOutcome::out_of_memory);
  rig.allocator.set_available(60_MiB);
  CHECK(rig.attempt(60_MiB) == simulator::AllocationOutcome::allocated);
}

// emptyCache
TEST_CASE("emptying the cache returns segments without a tensor, after their events") {
  Rig rig;
  const simulator::BlockId kept = rig.get(2_MiB);
  const simulator::BlockId waiting = rig.get(30_MiB);
  rig.drop(rig.get(40_MiB));
  rig.busy(1);
  rig.allocator.record_stream(waiting, 1);
  rig.drop(waiting);
  CHECK_FALSE(rig.allocator.empty_cache(rig.clocks));
  CHECK(rig.reserved_mib() == 90);
  rig.finish(1);
  CHECK(rig.allocator.empty_cache(rig.clocks));
  CHECK(rig.reserved_mib() == 20);
  CHECK(rig.allocator.stats().num_alloc_retries == 0);
  rig.drop(kept);
}

// get_free_block: max_split_size
TEST_CASE("with max_split_size a request below it does not break into a block of it or above") {
  simulator::AllocatorOptions options;
  options.max_split_size = 40_MiB;
  Rig rig(1_GiB, options);
  rig.drop(rig.get(40_MiB));
  rig.get(38_MiB);
  CHECK(rig.segments() == 2);
  CHECK(rig.allocator.stats().oversize_segments.current == 1);
  CHECK(rig.allocator.stats().oversize_allocations.current == 0);
  rig.get(40_MiB);
  CHECK(rig.segments() == 2);
  CHECK(rig.allocator.stats().oversize_allocations.current == 1);
}

// get_free_block: max_non_split_rounding; should_split
TEST_CASE("an oversize request takes an oversize block whole, if less than 20 MiB are wasted") {
  simulator::AllocatorOptions options;
  options.max_split_size = 40_MiB;
  Rig rig(1_GiB, options);
  rig.drop(rig.get(100_MiB));
  rig.get(80_MiB);  // 20 MiB would be wasted
  CHECK(rig.segments() == 2);
  CHECK(rig.allocator.size(rig.get(80_MiB + 512_B)) == 100_MiB);
  CHECK(rig.segments() == 2);
}

// release_available_cached_blocks
TEST_CASE("with max_split_size the smallest sufficient oversize segment is given back first") {
  simulator::AllocatorOptions options;
  options.max_split_size = 40_MiB;
  Rig rig(300_MiB, options);
  std::vector<simulator::BlockId> blocks;
  for (const Bytes size : {50_MiB, 90_MiB, 120_MiB}) blocks.push_back(rig.get(size));
  for (const simulator::BlockId block : blocks) rig.drop(block);
  rig.get(64_MiB);  // 90 would waste too much; 40 are left
  CHECK(rig.allocator.stats().num_alloc_retries == 0);
  CHECK(rig.allocator.stats().num_device_free == 1);
  CHECK(rig.reserved_mib() == 50 + 120 + 64);
}

// release_available_cached_blocks
TEST_CASE("where no oversize segment suffices the largest go back until they sum up") {
  simulator::AllocatorOptions options;
  options.max_split_size = 40_MiB;
  Rig rig(200_MiB, options);
  std::vector<simulator::BlockId> blocks;
  for (const Bytes size : {42_MiB, 50_MiB, 60_MiB}) blocks.push_back(rig.get(size));
  const simulator::BlockId small = rig.get(10_MiB);
  for (const simulator::BlockId block : blocks) rig.drop(block);
  rig.drop(small);
  rig.get(100_MiB);
  CHECK(rig.allocator.stats().num_alloc_retries == 0);
  CHECK(rig.allocator.stats().num_device_free == 2);  // 60 and 50
  CHECK(rig.reserved_mib() == 42 + 10 + 100);
}

// release_available_cached_blocks: size >= max_split_size
TEST_CASE("a block of exactly max_split_size is oversize") {
  simulator::AllocatorOptions options;
  options.max_split_size = 40_MiB;
  Rig rig(130_MiB, options);
  std::vector<simulator::BlockId> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(rig.get(40_MiB));
  for (const simulator::BlockId block : blocks) rig.drop(block);
  rig.get(100_MiB);
  CHECK(rig.allocator.stats().num_alloc_retries == 0);
  CHECK(rig.allocator.stats().num_device_free == 3);
}

// garbage_collect_cached_blocks
TEST_CASE(
    "above the threshold segments that were passed over more often than the average go back") {
  simulator::AllocatorOptions options;
  options.allowed = 200_MiB;
  options.garbage_collection_threshold = 0.5;
  Rig rig(1_GiB, options);
  const simulator::BlockId old = rig.get(30_MiB);
  const simulator::BlockId recent = rig.get(40_MiB);
  rig.drop(old);
  for (int i = 0; i < 3; ++i) rig.drop(rig.get(40_MiB + 2_MiB));  // look-ups that pass over it
  rig.drop(recent);
  CHECK(rig.reserved_mib() == 112);
  rig.get(50_MiB);  // more than 100 MiB are reserved
  CHECK(rig.allocator.stats().num_alloc_retries == 0);
  CHECK(rig.allocator.stats().num_device_free == 1);
  CHECK(rig.reserved_mib() == 112 - 30 + 50);
}

// garbage_collect_cached_blocks
TEST_CASE("garbage is not collected without a memory fraction") {
  simulator::AllocatorOptions options;
  options.garbage_collection_threshold = 0.01;
  Rig rig(1_GiB, options);
  rig.drop(rig.get(30_MiB));
  rig.get(50_MiB);
  CHECK(rig.allocator.stats().num_device_free == 0);
}

// map_block, ExpandableSegment::map
TEST_CASE("an expandable segment grows in pages of 2 and 20 MiB by what its free end lacks") {
  Rig rig(1_GiB, expandable());
  rig.get(512_B);
  CHECK(rig.reserved_mib() == 2);
  rig.get(3_MiB);
  CHECK(rig.reserved_mib() == 22);
  rig.get(17_MiB);  // fits the page exactly
  CHECK(rig.reserved_mib() == 22);
  rig.get(30_MiB);
  CHECK(rig.reserved_mib() == 62);
  rig.get(15_MiB);  // 10 free at the end, 5 lacking
  CHECK(rig.reserved_mib() == 82);
  CHECK(rig.segments() == 0);
  CHECK(rig.allocator.stats().num_device_alloc == 4);
  CHECK(rig.all().inactive_split.current == 0);
}

// should_split: expandable_segments
TEST_CASE("blocks of expandable segments are split down to 512 bytes") {
  Rig rig(1_GiB, expandable());
  const simulator::BlockId block = rig.get(20_MiB - 512_B);
  CHECK(rig.allocator.size(block) == 20_MiB - 512_B);
}

// get_free_block: expandable_size
TEST_CASE("the end of an expandable segment that can grow is taken last") {
  Rig rig(1_GiB, expandable());
  const simulator::BlockId hole = rig.get(8_MiB);
  const simulator::BlockId wall = rig.get(8_MiB);  // 4 MiB are left at the end
  const std::int64_t address = rig.allocator.address(hole);
  rig.drop(hole);
  CHECK(rig.allocator.address(rig.get(3_MiB)) == address);  // not the 4 MiB, though they fit better
  rig.drop(wall);
}

// unmap_block, ExpandableSegment::unmap
TEST_CASE("emptying the cache unmaps whole pages and keeps parts of pages") {
  Rig rig(1_GiB, expandable());
  const simulator::BlockId low = rig.get(30_MiB);
  const simulator::BlockId high = rig.get(60_MiB);  // 100 MiB mapped
  CHECK(rig.reserved_mib() == 100);
  rig.drop(high);
  CHECK(rig.allocator.empty_cache(rig.clocks));
  CHECK(rig.reserved_mib() == 40);
  rig.get(10_MiB);  // the rest of the second page
  CHECK(rig.reserved_mib() == 40);
  rig.drop(low);
  CHECK(rig.allocator.empty_cache(rig.clocks));
  CHECK(rig.reserved_mib() == 20);
}

// find_expandable_block
TEST_CASE("unmapped pages within an expandable segment are filled before it grows at its end") {
  Rig rig(1_GiB, expandable());
  const simulator::BlockId low = rig.get(40_MiB);
  const simulator::BlockId high = rig.get(20_MiB);
  const std::int64_t address = rig.allocator.address(low);
  rig.drop(low);
  CHECK(rig.allocator.empty_cache(rig.clocks));
  CHECK(rig.reserved_mib() == 20);
  CHECK(rig.allocator.address(rig.get(30_MiB)) == address);
  CHECK(rig.reserved_mib() == 60);
  rig.drop(high);
}

// try_allocate_expandable_block
TEST_CASE("where memory ends while an expandable segment grows, what was mapped stays cached") {
  Rig rig(80_MiB, expandable());
  const simulator::BlockId first = rig.get(20_MiB);
  const simulator::BlockId middle = rig.get(20_MiB);
  rig.drop(first);
  CHECK(rig.allocator.empty_cache(rig.clocks));  // unmapped, 20 in use
  rig.allocator.set_available(40_MiB);
  CHECK(rig.attempt(30_MiB) == simulator::AllocationOutcome::out_of_memory);
  CHECK(rig.reserved_mib() == 20);
  CHECK(rig.attempt(20_MiB) == simulator::AllocationOutcome::allocated);
  rig.drop(middle);
  rig.allocator.check_invariants();
}

// get_free_block: expandable_segments() is off
TEST_CASE("with expandable segments switched off their free memory is left alone") {
  Rig rig(1_GiB, expandable());
  rig.drop(rig.get(20_MiB));
  rig.allocator.set_expandable_segments(false);
  rig.get(20_MiB);
  CHECK(rig.segments() == 1);
  CHECK(rig.reserved_mib() == 40);
  rig.allocator.set_expandable_segments(true);
  rig.get(20_MiB);
  CHECK(rig.reserved_mib() == 40);
}
