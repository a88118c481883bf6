// The calls of the host: allocate, free, record_stream, empty_cache, and the events between them.
#include "simulator/allocator.hpp"

#include <bit>

#include "base/check.hpp"

namespace zeroplan::simulator {

CachingAllocator::CachingAllocator(const AllocatorOptions& options)
    : options_(options), max_split_(options.max_split_size.count()) {}

// Source: DeviceCachingAllocator::malloc. Events first; then a cached block; then the device.
Allocation CachingAllocator::allocate(const AllocationRequest& request, StreamClocks clocks) {
  ZP_CHECK(!has_search_, "an allocation waits for events");
  if (request.size == Bytes::zero()) return {};
  ZP_CHECK(request.size > Bytes::zero(), "a negative size");
  use_stream(request.stream);
  if (streams_with_events_ != 0) process_events(clocks);
  const Bytes rounded = round_size(request.size, options_);
  Search search;
  search.requested = request.size.count();
  search.rounded = rounded.count();
  search.tag = request.tag;
  search.stream = request.stream;
  search.is_small = rounded <= kSmallSize && !options_.is_arena();
  const BlockId block = take_cached_block(search);
  if (block != kNone) return finish(search, block);
  search.segment = segment_size(rounded, options_).count();
  return grow(search, clocks);
}

// The best fit: the smallest cached block of the stream that is large enough, among equals the
// first in their order (AllocatorOptions::oldest_segment_first). Only that one is examined: where
// it may not be taken, nothing is. Source: get_free_block.
BlockId CachingAllocator::take_cached_block(const Search& search) {
  // Ages are counted in look-ups of a pool, and only where garbage collection is on.
  if (options_.collects_garbage()) ++look_ups_[search.is_small ? 1 : 0];
  FreeList& list = free_lists_[list_of(search.stream, search.is_small)];
  FreeList::Position at = list.lower_bound(search.rounded);
  if (at == list.end()) return kNone;
  const auto is_expandable = [&] { return blocks_[list[at].block].reservation != kNone; };
  if (is_expandable()) {
    if (options_.expandable_segments) {
      // What stands before unmapped memory counts with what it can grow to, so that the growing
      // end of a segment is taken last.
      const auto reach = [&](FreeList::Position position) {
        const Block& block = blocks_[list[position].block];
        const bool grows = block.next != kNone && blocks_[block.next].state == State::unmapped;
        return block.size + (grows ? blocks_[block.next].size : 0);
      };
      FreeList::Position next = list.next(at);
      while (is_expandable() && next != list.end() && reach(next) < reach(at)) {
        at = next;
        next = list.next(at);
      }
    } else {
      while (at != list.end() && is_expandable()) at = list.next(at);
      if (at == list.end()) return kNone;
    }
  }
  const BlockId block = list[at].block;
  const std::int64_t size = list[at].size();
  // A small request may not break into an oversize block, a large one not waste too much of it.
  if (search.rounded < max_split_ && size >= max_split_) return kNone;
  if (search.rounded >= max_split_ &&
      size >= search.rounded + options_.max_non_split_rounding.count()) {
    return kNone;
  }
  list.erase(at);
  return block;
}

// Source: malloc, the calls after get_free_block.
Allocation CachingAllocator::grow(const Search& search, StreamClocks clocks) {
  if (options_.collects_garbage()) collect_garbage();
  BlockId block = allocate_from_device(search);
  if (block == kNone && options_.is_arena()) return grow_arena(search);
  if (block == kNone && release_oversize(search)) block = allocate_from_device(search);
  if (block != kNone) return finish(search, block);
  if (!events_complete(clocks)) {
    has_search_ = true;
    search_ = search;
    return {kNoBlock, AllocationOutcome::must_synchronize};
  }
  return flush_and_retry(search);
}

// No more than is needed, then and when nothing is cached any more. Source: Arena::grow.
Allocation CachingAllocator::grow_arena(Search search) {
  search.segment = round_up(search.rounded, kRoundLarge.count());
  const BlockId block = allocate_from_device(search);
  return block == kNone ? flush_and_retry(search) : finish(search, block);
}

Allocation CachingAllocator::continue_allocation(StreamClocks clocks) {
  ZP_CHECK(has_search_, "no allocation waits for events");
  ZP_CHECK(events_complete(clocks), "an event is not complete");
  has_search_ = false;
  return flush_and_retry(search_);
}

Allocation CachingAllocator::flush_and_retry(const Search& search) {
  release_cached();
  ++stats_.num_alloc_retries;
  const BlockId block = allocate_from_device(search);
  if (block != kNone) return finish(search, block);

  ++stats_.num_ooms;
  const Bytes free = options_.available - Bytes::of(reserved_);
  out_of_memory_ = {.tried = Bytes::of(search.segment),
                    .requested = Bytes::of(search.requested),
                    .total = options_.device_total,
                    .free = free,
                    .allowed = options_.allowed.value_or(Bytes::infinite()),
                    .allocated = stats_.allocated(),
                    .reserved = stats_.reserved()};
  if (events_out_ != nullptr) {
    events_out_->push_back(
        {AllocatorAction::oom, search.stream, free.count(), Bytes::of(search.rounded), search.tag});
  }
  return {kNoBlock, AllocationOutcome::out_of_memory};
}

// Source: should_split.
bool CachingAllocator::should_split(const Block& block, std::int64_t rounded) const {
  const std::int64_t remaining = block.size - rounded;
  if (block.is_small || options_.expandable_segments || options_.is_arena()) {
    return remaining >= kMinBlockSize.count();
  }
  return rounded < max_split_ && remaining > kSmallSize.count();
}

// The low part of a block becomes the tensor's, the rest stays free; or all of it does.
// `id` is in no list. Source: alloc_found_block.
Allocation CachingAllocator::finish(const Search& search, BlockId id) {
  const auto stats = stats_of(search.is_small);
  const bool was_split = blocks_[id].prev != kNone || blocks_[id].next != kNone;
  const bool counts_as_split = blocks_[id].reservation == kNone;
  if (should_split(blocks_[id], search.rounded)) {
    const BlockId front_id = new_block();
    Block& front = blocks_[front_id];
    Block& rest = blocks_[id];
    front.address = rest.address;
    front.shift = rest.shift;
    front.size = search.rounded;
    front.stream = rest.stream;
    front.is_small = rest.is_small;
    front.reservation = rest.reservation;
    front.prev = rest.prev;
    front.next = id;
    if (front.prev != kNone) blocks_[front.prev].next = front_id;
    rest.prev = front_id;
    rest.address += search.rounded;
    rest.size -= search.rounded;
    insert_free(id);
    if (counts_as_split) {
      for (PoolStats* pool : stats) {
        if (was_split) {
          pool->inactive_split_bytes.decrease(search.rounded);
        } else {
          pool->inactive_split_bytes.increase(rest.size);
          pool->inactive_split.increase(1);
        }
      }
    }
    id = front_id;
  } else if (was_split && counts_as_split) {
    for (PoolStats* pool : stats) {
      pool->inactive_split_bytes.decrease(blocks_[id].size);
      pool->inactive_split.decrease(1);
    }
  }

  Block& block = blocks_[id];
  block.state = State::allocated;
  block.requested = search.requested;
  block.tag = search.tag;
  for (PoolStats* pool : stats) {
    pool->allocation.increase(1);
    pool->allocated_bytes.increase(block.size);
    pool->active.increase(1);
    pool->active_bytes.increase(block.size);
    pool->requested_bytes.increase(block.requested);
  }
  if (block.size >= max_split_) stats_.oversize_allocations.increase(1);
  record(AllocatorAction::alloc, block, block.requested);
  return {id, AllocationOutcome::allocated};
}

// Uses on the stream of the allocation need no event. Source: recordStream.
void CachingAllocator::record_stream(BlockId id, StreamId stream) {
  if (id == kNoBlock) return;
  live(id);
  use_stream(stream);
  Block& block = blocks_[id];
  if (stream != block.stream) block.stream_uses |= std::uint64_t{1} << stream;
}

// allocated_bytes falls at once, even where the block has to wait. Source: free.
void CachingAllocator::free(BlockId id, StreamClocks clocks) {
  if (id == kNoBlock) return;
  const Block& block = live(id);
  for (PoolStats* pool : stats_of(block.is_small)) {
    pool->allocation.decrease(1);
    pool->allocated_bytes.decrease(block.size);
  }
  record(AllocatorAction::free_requested, block, block.requested);
  if (block.size >= max_split_) stats_.oversize_allocations.decrease(1);
  if (block.stream_uses != 0) {
    insert_events(id, clocks);
  } else {
    make_free(id);
  }
}

// One event on each stream that used the block, behind what is queued there now.
// Source: insert_events.
void CachingAllocator::insert_events(BlockId id, StreamClocks clocks) {
  Block& block = blocks_[id];
  block.state = State::awaiting_events;
  for (std::uint64_t uses = block.stream_uses; uses != 0; uses &= uses - 1) {
    const int stream = std::countr_zero(uses);
    event_queues_[static_cast<std::size_t>(stream)].push({queued(clocks, stream), id});
    ++block.events;
  }
  streams_with_events_ |= block.stream_uses;
  block.stream_uses = 0;
}

// Each stream's events from the oldest, up to the first that is not complete.
// Source: process_events.
void CachingAllocator::process_events(StreamClocks clocks) {
  for (std::uint64_t streams = streams_with_events_; streams != 0; streams &= streams - 1) {
    const int stream = std::countr_zero(streams);
    EventQueue& queue = event_queues_[static_cast<std::size_t>(stream)];
    while (!queue.empty() && is_complete(clocks, stream, queue.events[queue.head].ticket)) {
      const BlockId block = queue.events[queue.head].block;
      queue.pop();
      complete_event(block);
    }
    if (queue.empty()) streams_with_events_ &= ~(std::uint64_t{1} << stream);
  }
}

void CachingAllocator::complete_event(BlockId id) {
  if (--blocks_[id].events == 0) make_free(id);
}

// The block joins its free neighbours and becomes available to its stream. Nothing is given back
// to the device. Source: free_block.
void CachingAllocator::make_free(BlockId id) {
  record(AllocatorAction::free_completed, blocks_[id], blocks_[id].requested);
  Block& block = blocks_[id];
  const std::int64_t size = block.size;
  const std::int64_t requested = block.requested;
  block.state = State::free;
  block.requested = 0;
  block.tag = 0;
  std::int64_t split_blocks = 0;
  std::int64_t split_bytes = 0;
  for (const BlockId neighbour : {block.prev, block.next}) {
    const std::int64_t subsumed = merge(id, neighbour);
    split_blocks -= subsumed > 0 ? 1 : 0;
    split_bytes -= subsumed;
  }
  insert_free(id);
  if (block.prev != kNone || block.next != kNone) {
    split_blocks += 1;
    split_bytes += block.size;
  }
  for (PoolStats* pool : stats_of(block.is_small)) {
    if (block.reservation == kNone) {
      pool->inactive_split.change(split_blocks);
      pool->inactive_split_bytes.change(split_bytes);
    }
    pool->active.decrease(1);
    pool->active_bytes.decrease(size);
    pool->requested_bytes.decrease(requested);
  }
}

// Joins a neighbour in the same state, free or unmapped, to a block that is in no list; returns
// the bytes it brought, 0 where there is nothing to join. Source: try_merge_blocks.
std::int64_t CachingAllocator::merge(BlockId into, BlockId neighbour) {
  if (neighbour == kNone) return 0;
  Block& block = blocks_[into];
  const Block& other = blocks_[neighbour];
  if (other.state != block.state) return 0;
  if (block.prev == neighbour) {
    block.address = other.address;
    block.prev = other.prev;
    if (block.prev != kNone) blocks_[block.prev].next = into;
  } else {
    block.next = other.next;
    if (block.next != kNone) blocks_[block.next].prev = into;
  }
  const std::int64_t subsumed = other.size;
  if (other.state == State::free) {
    erase_free(other);
  } else {
    erase_unmapped(neighbour);
  }
  block.size += subsumed;
  drop_block(neighbour);
  return subsumed;
}

bool CachingAllocator::empty_cache(StreamClocks clocks) {
  ZP_CHECK(!has_search_, "an allocation waits for events");
  if (!events_complete(clocks)) return false;
  release_cached();
  return true;
}

bool CachingAllocator::events_complete(StreamClocks clocks) const {
  for (std::uint64_t streams = streams_with_events_; streams != 0; streams &= streams - 1) {
    const int stream = std::countr_zero(streams);
    if (!is_complete(clocks, stream, awaited(stream))) return false;
  }
  return true;
}

std::int64_t CachingAllocator::awaited(StreamId stream) const {
  const auto i = static_cast<std::size_t>(stream);
  if (i >= event_queues_.size() || event_queues_[i].empty()) return 0;
  return event_queues_[i].events.back().ticket;
}

}  // namespace zeroplan::simulator
