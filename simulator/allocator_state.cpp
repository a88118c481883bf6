// The allocator's state as words that do not depend on how it came about, and its invariants.
#include <algorithm>

#include "base/check.hpp"
#include "simulator/allocator.hpp"

namespace zeroplan::simulator {

namespace {

// What a word of a canonical state stands for, in its lowest bits.
enum Mark : std::uint64_t {
  segment_begins,
  live_block,
  free_block,
  unmapped_part,
  waiting_block,
  event,
  age
};
constexpr int kMarkBits = 3;

constexpr std::uint64_t word(Mark mark, std::uint64_t value) { return value << kMarkBits | mark; }

}  // namespace

std::vector<std::uint64_t> CachingAllocator::canonical_state(StreamClocks clocks,
                                                             const CanonicalLabel& label) const {
  ZP_CHECK(!has_search_, "an allocation waits for events");
  std::vector<std::uint64_t> words;
  std::vector<std::uint64_t> ordinal(blocks_.size());  // of waiting blocks, in the walk
  std::uint64_t waiting = 0;
  for (const BlockId head : segment_heads()) {
    const Block& first = blocks_[head];
    words.push_back(word(
        segment_begins,
        static_cast<std::uint64_t>(list_of(first)) << 1 | (first.reservation != kNone ? 1 : 0)));
    for (BlockId id = head; id != kNone; id = blocks_[id].next) {
      const Block& block = blocks_[id];
      const auto size = static_cast<std::uint64_t>(block.size);
      if (block.state == State::allocated) {
        words.insert(words.end(),
                     {word(live_block, size), label ? label(id) : block.tag, block.stream_uses});
      } else if (block.state == State::awaiting_events) {
        ordinal[static_cast<std::size_t>(id)] = waiting++;
        words.push_back(word(waiting_block, size));
      } else {
        words.push_back(word(block.state == State::free ? free_block : unmapped_part, size));
        // Ages matter to the garbage collection of whole segments of the large pool alone.
        if (options_.collects_garbage() && !block.is_small && is_whole_segment(id)) {
          words.push_back(word(age, static_cast<std::uint64_t>(look_ups_[0] - block.gc_base)));
        }
      }
    }
  }
  for (std::size_t stream = 0; stream < event_queues_.size(); ++stream) {
    const EventQueue& queue = event_queues_[stream];
    for (std::size_t i = queue.head; i < queue.events.size(); ++i) {
      const Event& e = queue.events[i];
      const std::int64_t lag = queued(clocks, static_cast<StreamId>(stream)) - e.ticket;
      words.insert(words.end(),
                   {word(event, stream),
                    ordinal[static_cast<std::size_t>(e.block)],
                    static_cast<std::uint64_t>(lag)});
    }
  }
  return words;
}

Fingerprint CachingAllocator::fingerprint(StreamClocks clocks, const CanonicalLabel& label) const {
  Fingerprint print;
  for (const std::uint64_t w : canonical_state(clocks, label)) print.add(w);
  return print;
}

namespace {

// What the blocks themselves say, to hold against the lists and the statistics.
struct Census {
  std::array<std::int64_t, kStatPools> allocated{}, allocated_bytes{}, active{}, active_bytes{};
  std::array<std::int64_t, kStatPools> requested{}, segments{}, reserved{}, split{}, split_bytes{};

  static void add(std::array<std::int64_t, kStatPools>& counts, bool small, std::int64_t amount) {
    counts[static_cast<std::size_t>(StatPool::all)] += amount;
    counts[static_cast<std::size_t>(small ? StatPool::small_pool : StatPool::large_pool)] += amount;
  }
};

void check_census(const Census& census, const MemoryStats& stats) {
  for (std::size_t i = 0; i < kStatPools; ++i) {
    const PoolStats& pool = stats.pools[i];
    ZP_CHECK(pool.allocation.current == census.allocated[i], "allocation");
    ZP_CHECK(pool.allocated_bytes.current == census.allocated_bytes[i], "allocated_bytes");
    ZP_CHECK(pool.active.current == census.active[i], "active");
    ZP_CHECK(pool.active_bytes.current == census.active_bytes[i], "active_bytes");
    ZP_CHECK(pool.requested_bytes.current == census.requested[i], "requested_bytes");
    ZP_CHECK(pool.segment.current == census.segments[i], "segment");
    ZP_CHECK(pool.reserved_bytes.current == census.reserved[i], "reserved_bytes");
    ZP_CHECK(pool.inactive_split.current == census.split[i], "inactive_split");
    ZP_CHECK(pool.inactive_split_bytes.current == census.split_bytes[i], "inactive_split_bytes");
  }
}

}  // namespace

void CachingAllocator::check_block(BlockId id, bool follows_same_state) const {
  const Block& block = blocks_[id];
  ZP_CHECK(block.size > 0 && block.size % kMinBlockSize.count() == 0, "a block's size");
  if (block.next != kNone) {
    const Block& next = blocks_[block.next];
    ZP_CHECK(next.prev == id, "neighbours disagree");
    ZP_CHECK(next.address == block.address + block.size, "a gap between neighbours");
    ZP_CHECK(list_of(next) == list_of(block), "neighbours of different pools");
    ZP_CHECK(next.reservation == block.reservation, "neighbours of different segments");
  }
  ZP_CHECK(!follows_same_state, "two adjacent blocks that should be one");
  ZP_CHECK((block.state == State::awaiting_events) == (block.events > 0), "events of a block");
  if (block.state == State::free) {
    const FreeList& list = free_lists_[list_of(block)];
    const auto at = list.lower_bound(block.size, place_in_order(block));
    ZP_CHECK(at != list.end() && list[at].block == id, "a free block is not in its list");
  }
  if (block.state == State::unmapped) {
    const Reservation& reservation = reservations_[block.reservation];
    ZP_CHECK((block.address - reservation.base) % reservation.page == 0 &&
                 block.size % reservation.page == 0,
             "unmapped memory is not whole pages");
    ZP_CHECK(
        std::count(unmapped_[list_of(block)].begin(), unmapped_[list_of(block)].end(), id) == 1,
        "unmapped memory is not in its list");
  }
}

void CachingAllocator::check_invariants() const {
  Census census;
  std::vector<std::int64_t> free_counts(free_lists_.size());
  std::int64_t outstanding = 0;
  std::int64_t in_segments = 0;
  for (const BlockId head : segment_heads()) {
    const Block& first = blocks_[head];
    if (first.reservation == kNone) Census::add(census.segments, first.is_small, 1);
    State previous = State::unused;
    for (BlockId id = head; id != kNone; id = blocks_[id].next) {
      const Block& block = blocks_[id];
      const bool joins = block.state == State::free || block.state == State::unmapped;
      check_block(id, joins && block.state == previous);
      previous = block.state;
      ++in_segments;
      outstanding += block.events;
      if (block.state == State::unmapped) continue;
      Census::add(census.reserved, block.is_small, block.size);
      if (block.state == State::free) {
        ++free_counts[list_of(block)];
        const bool is_split = block.prev != kNone || block.next != kNone;
        if (!is_split || block.reservation != kNone) continue;
        Census::add(census.split, block.is_small, 1);
        Census::add(census.split_bytes, block.is_small, block.size);
        continue;
      }
      Census::add(census.active, block.is_small, 1);
      Census::add(census.active_bytes, block.is_small, block.size);
      Census::add(census.requested, block.is_small, block.requested);
      if (block.state != State::allocated) continue;
      Census::add(census.allocated, block.is_small, 1);
      Census::add(census.allocated_bytes, block.is_small, block.size);
    }
  }
  check_census(census, stats_);
  ZP_CHECK(reserved_ == stats_.reserved().count(), "reserved memory");
  for (std::size_t i = 0; i < free_lists_.size(); ++i) {
    ZP_CHECK(free_lists_[i].count() == free_counts[i], "a free list has foreign entries");
  }
  for (const EventQueue& queue : event_queues_) {
    outstanding -= static_cast<std::int64_t>(queue.events.size() - queue.head);
  }
  ZP_CHECK(outstanding == 0, "events without a block");
  std::int64_t unused = 0;
  for (BlockId id = unused_; id != kNoBlock; id = blocks_[id].next) ++unused;
  ZP_CHECK(in_segments + unused == static_cast<std::int64_t>(blocks_.size()), "a lost block");
}

}  // namespace zeroplan::simulator
