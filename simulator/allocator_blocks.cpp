// The arena of blocks, its lists, and what can be read of them.
#include <algorithm>

#include "base/check.hpp"
#include "simulator/allocator.hpp"

namespace zeroplan::simulator {

void CachingAllocator::EventQueue::push(Event event) {
  // Room at the front is used again before the storage grows.
  if (events.size() == events.capacity() && head > events.size() / 2) {
    events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(head));
    head = 0;
  }
  events.push_back(event);
}

void CachingAllocator::EventQueue::pop() {
  if (++head == events.size()) {
    events.clear();
    head = 0;
  }
}

BlockId CachingAllocator::new_block() {
  if (unused_ == kNoBlock) {
    blocks_.emplace_back();
    return static_cast<BlockId>(blocks_.size() - 1);
  }
  const BlockId id = unused_;
  unused_ = blocks_[id].next;
  blocks_[id] = Block{};
  return id;
}

void CachingAllocator::drop_block(BlockId id) {
  blocks_[id].state = State::unused;
  blocks_[id].next = unused_;
  unused_ = id;
}

// `id` comes to stand behind `after`, before what followed it.
void CachingAllocator::link_after(BlockId after, BlockId id) {
  link_between(after, id, blocks_[after].next);
}

void CachingAllocator::link_between(BlockId before, BlockId id, BlockId after) {
  blocks_[id].prev = before;
  blocks_[id].next = after;
  if (before != kNone) blocks_[before].next = id;
  if (after != kNone) blocks_[after].prev = id;
}

// Source: BlockPool::insert_into_blocks.
void CachingAllocator::insert_free(BlockId id) {
  Block& block = blocks_[id];
  block.state = State::free;
  block.gc_base = look_ups_[block.is_small ? 1 : 0];
  free_lists_[list_of(block)].insert(block.size, place_in_order(block), id);
}

void CachingAllocator::erase_free(const Block& block) {
  free_lists_[list_of(block)].erase(block.size, place_in_order(block));
}

void CachingAllocator::insert_unmapped(BlockId id) {
  std::vector<BlockId>& list = unmapped_[list_of(blocks_[id])];
  const auto at = std::lower_bound(list.begin(), list.end(), id, [&](BlockId a, BlockId b) {
    return blocks_[a].address < blocks_[b].address;
  });
  list.insert(at, id);
}

void CachingAllocator::erase_unmapped(BlockId id) {
  std::vector<BlockId>& list = unmapped_[list_of(blocks_[id])];
  list.erase(std::find(list.begin(), list.end(), id));
}

std::int32_t CachingAllocator::new_reservation(const Reservation& reservation) {
  for (std::size_t i = 0; i < reservations_.size(); ++i) {
    if (reservations_[i].size != 0) continue;
    reservations_[i] = reservation;
    return static_cast<std::int32_t>(i);
  }
  reservations_.push_back(reservation);
  return static_cast<std::int32_t>(reservations_.size() - 1);
}

// Nothing of the segment is mapped: its address space goes too. Source: release_expandable_segment.
void CachingAllocator::drop_reservation(BlockId id) {
  ZP_CHECK(blocks_[id].state == State::unmapped, "an expandable segment is in use");
  erase_unmapped(id);
  reservations_[blocks_[id].reservation] = Reservation{};
  drop_block(id);
}

bool CachingAllocator::is_whole_segment(BlockId id) const {
  const Block& block = blocks_[id];
  return block.prev == kNone && block.next == kNone && block.reservation == kNone;
}

void CachingAllocator::grow_to_stream(StreamId stream) {
  ZP_CHECK(stream >= 0 && stream < kMaxStreams, "a stream outside 0..63");
  const auto count = static_cast<std::size_t>(stream) + 1;
  free_lists_.resize(2 * count);
  unmapped_.resize(2 * count);
  event_queues_.resize(count);
}

std::array<PoolStats*, 2> CachingAllocator::stats_of(bool is_small) {
  const auto pool =
      static_cast<std::size_t>(is_small ? StatPool::small_pool : StatPool::large_pool);
  return {&stats_.pools[static_cast<std::size_t>(StatPool::all)], &stats_.pools[pool]};
}

void CachingAllocator::record_now(AllocatorAction action, const Block& block, std::int64_t size) {
  events_out_->push_back({action, block.stream, block.address, Bytes::of(size), block.tag});
}

const CachingAllocator::Block& CachingAllocator::live(BlockId id) const {
  ZP_CHECK(id >= 0 && static_cast<std::size_t>(id) < blocks_.size() &&
               blocks_[id].state == State::allocated,
           "a block that is not allocated");
  return blocks_[id];
}

Bytes CachingAllocator::size(BlockId block) const { return Bytes::of(live(block).size); }
std::int64_t CachingAllocator::address(BlockId block) const { return live(block).address; }
std::uint64_t CachingAllocator::tag(BlockId block) const { return live(block).tag; }

std::vector<BlockId> CachingAllocator::segment_heads() const {
  std::vector<BlockId> heads;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].state != State::unused && blocks_[i].prev == kNone) {
      heads.push_back(static_cast<BlockId>(i));
    }
  }
  std::sort(heads.begin(), heads.end(), [&](BlockId a, BlockId b) {
    return place_in_order(blocks_[a]) < place_in_order(blocks_[b]);
  });
  return heads;
}

std::vector<SegmentSnapshot> CachingAllocator::snapshot() const {
  std::vector<SegmentSnapshot> segments;
  for (const BlockId head : segment_heads()) {
    bool is_open = false;
    for (BlockId id = head; id != kNone; id = blocks_[id].next) {
      const Block& block = blocks_[id];
      if (block.state == State::unmapped) {
        is_open = false;
        continue;
      }
      if (!is_open) {
        is_open = true;
        segments.push_back({.address = block.address,
                            .total_size = Bytes::zero(),
                            .stream = block.stream,
                            .is_large = !block.is_small,
                            .is_expandable = block.reservation != kNone,
                            .blocks = {}});
      }
      const BlockState state = block.state == State::allocated         ? BlockState::allocated
                               : block.state == State::awaiting_events ? BlockState::awaiting_events
                                                                       : BlockState::free;
      const bool in_use = state != BlockState::free;
      segments.back().total_size += Bytes::of(block.size);
      segments.back().blocks.push_back({.address = block.address,
                                        .size = Bytes::of(block.size),
                                        .requested = Bytes::of(in_use ? block.requested : 0),
                                        .state = state,
                                        .tag = in_use ? block.tag : 0});
    }
  }
  std::sort(
      segments.begin(), segments.end(), [](const SegmentSnapshot& a, const SegmentSnapshot& b) {
        return a.address < b.address;
      });
  return segments;
}

}  // namespace zeroplan::simulator
