// Between the allocator and the device: segments, expandable segments, and giving memory back.
#include <algorithm>

#include "base/check.hpp"
#include "simulator/allocator.hpp"

namespace zeroplan::simulator {

namespace {

// Address space of an expandable segment where the device's memory is unbounded.
constexpr std::int64_t kUnboundedAddressSpace = std::int64_t{1} << 44;

}  // namespace

// Where a new segment of `size` bytes stands: in memory, and among free blocks of its size.
void CachingAllocator::place(Block& block, std::int64_t size) {
  lowest_address_ = placed_ ? *placed_ : lowest_address_ - round_up(size, kRoundLarge.count());
  placed_.reset();
  block.address = lowest_address_;
  if (!options_.oldest_segment_first) return;
  block.shift = segment_bytes_ - block.address;
  segment_bytes_ += size;
}

// A block outside every list, or none. Source: alloc_block.
BlockId CachingAllocator::allocate_from_device(const Search& search) {
  if (search.segment > FreeList::kLargestSize) return kNone;  // no device has 1 TiB
  if (options_.allowed && reserved_ + search.segment > options_.allowed->count()) return kNone;
  if (options_.expandable_segments) return allocate_expandable(search);
  // cudaMalloc
  if (search.segment > options_.available.count() - reserved_) return kNone;
  const BlockId id = new_block();
  Block& block = blocks_[id];
  place(block, search.segment);
  block.size = search.segment;
  block.stream = static_cast<std::int16_t>(search.stream);
  block.is_small = search.is_small;
  block.state = State::free;
  reserved_ += search.segment;
  for (PoolStats* pool : stats_of(search.is_small)) {
    pool->segment.increase(1);
    pool->reserved_bytes.increase(search.segment);
  }
  if (search.segment >= max_split_) stats_.oversize_segments.increase(1);
  ++stats_.num_device_alloc;
  record(AllocatorAction::segment_alloc, block, block.size);
  return id;
}

// Grows the stream's expandable segment where the request fits first. It asks for the block, not
// for a segment: what is free before the unmapped memory is used. Where memory ends half-way, what
// was mapped stays. Source: try_allocate_expandable_block.
BlockId CachingAllocator::allocate_expandable(const Search& search) {
  BlockId candidate = find_expandable(search);
  if (candidate == kNone) return kNone;
  if (blocks_[candidate].state == State::unmapped &&
      !map(candidate, std::min(blocks_[candidate].size, search.rounded))) {
    return kNone;
  }
  while (blocks_[candidate].size < search.rounded) {
    const BlockId unmapped = blocks_[candidate].next;
    const std::int64_t missing = search.rounded - blocks_[candidate].size;
    if (!map(unmapped, std::min(missing, blocks_[unmapped].size))) return kNone;
    candidate = unmapped;  // the former candidate is part of it now
  }
  erase_free(blocks_[candidate]);
  return candidate;
}

// The lowest unmapped memory of the stream where the request has room, together with free memory
// beside it; else a new segment, in address space for 9/8 of the device.
// Source: find_expandable_block, ExpandableSegment.
BlockId CachingAllocator::find_expandable(const Search& search) {
  const auto is_allocatable = [&](BlockId id) {
    return id != kNone &&
           (blocks_[id].state == State::free || blocks_[id].state == State::unmapped);
  };
  std::vector<BlockId>& unmapped = unmapped_[list_of(search.stream, search.is_small)];
  for (BlockId first : unmapped) {
    if (is_allocatable(blocks_[first].prev)) first = blocks_[first].prev;
    std::int64_t room = 0;
    for (BlockId id = first; room < search.rounded && is_allocatable(id); id = blocks_[id].next) {
      room += blocks_[id].size;
    }
    if (room >= search.rounded) return first;
  }

  const std::int64_t page =
      search.is_small ? kSmallBuffer.count() : options_.large_segment_size.count();
  const std::int64_t total = options_.device_total.count();
  const std::int64_t space =
      options_.device_total.is_infinite() ? kUnboundedAddressSpace : total + total / 8;
  const std::int64_t size = round_up(space, page);
  if (size < search.rounded) return kNone;
  const BlockId id = new_block();
  Block& block = blocks_[id];
  place(block, size);
  const Reservation reservation{block.address, size, page};
  block.size = size;
  block.stream = static_cast<std::int16_t>(search.stream);
  block.is_small = search.is_small;
  block.reservation = new_reservation(reservation);
  block.state = State::unmapped;
  insert_unmapped(id);
  return id;
}

// Backs the low part of an unmapped block with whole pages, all or none, and frees it.
// Source: map_block, ExpandableSegment::map.
bool CachingAllocator::map(BlockId id, std::int64_t size) {
  const std::int64_t mapped = round_up(size, reservations_[blocks_[id].reservation].page);
  if (mapped > options_.available.count() - reserved_) return false;
  erase_unmapped(id);
  if (mapped < blocks_[id].size) {
    const BlockId rest_id = new_block();
    Block& rest = blocks_[rest_id];
    const Block& block = blocks_[id];
    rest = block;
    rest.address = block.address + mapped;
    rest.size = block.size - mapped;
    rest.state = State::unmapped;
    link_after(id, rest_id);
    insert_unmapped(rest_id);
    blocks_[id].size = mapped;
  }
  Block& block = blocks_[id];
  block.state = State::free;
  reserved_ += mapped;
  for (PoolStats* pool : stats_of(block.is_small)) pool->reserved_bytes.increase(mapped);
  ++stats_.num_device_alloc;
  record(AllocatorAction::segment_map, block, mapped);
  merge(id, block.prev);
  merge(id, block.next);
  insert_free(id);
  return true;
}

// Takes back the whole pages inside a free block; parts of pages at its ends stay free.
// Source: unmap_block, ExpandableSegment::unmap.
void CachingAllocator::unmap(BlockId id) {
  const Reservation reservation = reservations_[blocks_[id].reservation];
  const std::int64_t low = blocks_[id].address - reservation.base;
  const std::int64_t begin = round_up(low, reservation.page);
  const std::int64_t end = (low + blocks_[id].size) / reservation.page * reservation.page;
  if (begin >= end) return;
  erase_free(blocks_[id]);
  const std::int64_t before = begin - low;
  const std::int64_t after = low + blocks_[id].size - end;
  if (before > 0) {
    const BlockId part_id = new_block();
    Block& part = blocks_[part_id];
    part = blocks_[id];
    part.size = before;
    link_between(blocks_[id].prev, part_id, id);
    insert_free(part_id);
  }
  if (after > 0) {
    const BlockId part_id = new_block();
    Block& part = blocks_[part_id];
    part = blocks_[id];
    part.address = reservation.base + end;
    part.size = after;
    link_after(id, part_id);
    insert_free(part_id);
  }
  Block& block = blocks_[id];
  block.address = reservation.base + begin;
  block.size = end - begin;
  block.state = State::unmapped;
  reserved_ -= block.size;
  for (PoolStats* pool : stats_of(block.is_small)) pool->reserved_bytes.decrease(block.size);
  ++stats_.num_device_free;
  record(AllocatorAction::segment_unmap, block, block.size);
  merge(id, block.prev);
  merge(id, block.next);
  insert_unmapped(id);
}

// Above a share of what is allowed, whole cached segments of the large pool go back, first those
// that have been passed over at least as often as the average one.
// Source: garbage_collect_cached_blocks.
void CachingAllocator::collect_garbage() {
  const auto threshold = static_cast<std::int64_t>(options_.garbage_collection_threshold *
                                                   static_cast<double>(options_.allowed->count()));
  if (reserved_ <= threshold) return;
  const std::int64_t target = reserved_ - threshold;
  std::vector<BlockId> candidates;
  for (std::size_t i = 0; i < free_lists_.size(); i += 2) {
    const FreeList& list = free_lists_[i];
    for (auto at = list.begin(); at != list.end(); at = list.next(at)) {
      const Block& block = blocks_[list[at].block];
      if (block.prev == kNone && block.next == kNone && block.reservation == kNone) {
        candidates.push_back(list[at].block);
      }
    }
  }
  const auto age = [&](BlockId id) { return look_ups_[0] - blocks_[id].gc_base; };
  std::int64_t total_age = 0;
  for (const BlockId id : candidates) total_age += age(id);
  std::int64_t reclaimed = 0;
  bool progress = true;
  while (reclaimed < target && progress && !candidates.empty()) {
    const double average = static_cast<double>(total_age) / static_cast<double>(candidates.size());
    const auto old = std::stable_partition(candidates.begin(), candidates.end(), [&](BlockId id) {
      return static_cast<double>(age(id)) < average;
    });
    progress = old != candidates.end();
    for (auto it = old; it != candidates.end(); ++it) {
      reclaimed += blocks_[*it].size;
      total_age -= age(*it);
      release_segment(*it);
    }
    candidates.erase(old, candidates.end());
  }
}

// With max_split_size: gives back the best-fitting oversize segment of the stream, or, where none
// is large enough, the largest ones until they sum up. True where that can have helped. Source:
// release_available_cached_blocks.
bool CachingAllocator::release_oversize(const Search& search) {
  if (options_.max_split_size.is_infinite()) return false;
  FreeList& list = free_lists_[list_of(search.stream, search.is_small)];
  const std::int64_t wanted = std::max(search.rounded, max_split_);
  const auto at = list.lower_bound(wanted);
  if (at != list.end() && is_whole_segment(list[at].block)) {
    release_segment(list[at].block);
    return true;
  }
  std::vector<BlockId> released;
  std::int64_t sum = 0;
  for (auto it = at; sum < wanted && it != list.begin();) {
    it = list.previous(it);
    if (list[it].size() < max_split_) break;
    if (!is_whole_segment(list[it].block)) continue;
    sum += list[it].size();
    released.push_back(list[it].block);
  }
  for (const BlockId id : released) release_segment(id);
  return sum >= wanted;
}

// All waiting blocks first; the caller has seen that their events are complete.
// Source: release_cached_blocks, synchronize_and_free_events.
void CachingAllocator::release_cached() {
  ++stats_.num_sync_all_streams;
  for (EventQueue& queue : event_queues_) {
    while (!queue.empty()) {
      const BlockId block = queue.events[queue.head].block;
      queue.pop();
      complete_event(block);
    }
  }
  streams_with_events_ = 0;
  release_pool(false);
  release_pool(true);
}

// Segments without a tensor go back; of expandable ones every whole page without. Source:
// release_blocks.
void CachingAllocator::release_pool(bool is_small) {
  for (std::size_t i = is_small ? 1 : 0; i < free_lists_.size(); i += 2) {
    std::vector<BlockId> free;
    const FreeList& list = free_lists_[i];
    for (auto at = list.begin(); at != list.end(); at = list.next(at)) {
      free.push_back(list[at].block);
    }
    for (const BlockId id : free) {
      if (is_whole_segment(id)) {
        release_segment(id);
      } else if (blocks_[id].reservation != kNone) {
        unmap(id);
        if (blocks_[id].prev == kNone && blocks_[id].next == kNone) drop_reservation(id);
      }
    }
  }
}

// cudaFree. Source: release_block.
void CachingAllocator::release_segment(BlockId id) {
  const Block& block = blocks_[id];
  erase_free(block);
  reserved_ -= block.size;
  for (PoolStats* pool : stats_of(block.is_small)) {
    pool->segment.decrease(1);
    pool->reserved_bytes.decrease(block.size);
  }
  if (block.size >= max_split_) stats_.oversize_segments.decrease(1);
  ++stats_.num_device_free;
  record(AllocatorAction::segment_free, block, block.size);
  drop_block(id);
}

}  // namespace zeroplan::simulator
