#include "simulator/pinned_allocator.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "model/check.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

std::size_t bucket_of(std::int64_t size) {
  return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(size) - 1));
}

}  // namespace

PinnedOptions PinnedOptions::of(const Version& torch) {
  PinnedOptions options;
  options.reuse =
      acts(ReleaseRule::sorts_pinned_by_size, torch) ? PinnedReuse::bucket : PinnedReuse::best_fit;
  return options;
}

std::int64_t PinnedAllocator::rounded(std::int64_t size) const {
  const Bytes bytes = Bytes::of(size);
  if (bytes > options_.largest_rounded || bytes > options_.largest_cached) return size;
  if (size > std::int64_t{1} << 62) throw SizeOverflow();
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size)));
}

PinnedId PinnedAllocator::allocate(Bytes size, StreamClocks clocks) {
  if (size == Bytes::zero()) return kNoPinned;
  ZP_CHECK(size > Bytes::zero(), "a negative size");
  process_events(clocks);
  const std::int64_t wanted = rounded(size.count());
  PinnedId id = take_cached(wanted);
  if (id == kNoPinned) {
    if (unused_.empty()) {
      id = static_cast<PinnedId>(blocks_.size());
      blocks_.emplace_back();
    } else {
      id = unused_.back();
      unused_.pop_back();
    }
    blocks_[id] = {.size = wanted,
                   .serial = ++serial_,
                   .is_cached_when_free = size <= options_.largest_cached};
    stats_.segment.increase(1);
    stats_.reserved_bytes.increase(wanted);
  }
  blocks_[id].is_allocated = true;
  stats_.allocation.increase(1);
  stats_.allocated_bytes.increase(blocks_[id].size);
  return id;
}

// Source: get_free_block. Buckets give the last one freed; blocks that were not rounded may share a
// bucket with smaller ones, which are passed over (pull request 192722).
PinnedId PinnedAllocator::take_cached(std::int64_t size) {
  const auto is_large_enough = [&](PinnedId id) { return blocks_[id].size >= size; };
  std::vector<PinnedId>* bucket = &buckets_[bucket_of(size)];
  auto found = std::find_if(bucket->rbegin(), bucket->rend(), is_large_enough);
  if (options_.reuse == PinnedReuse::best_fit) {
    const auto is_better = [&](PinnedId a, PinnedId b) {
      return std::pair(blocks_[a].size, blocks_[a].serial) <
             std::pair(blocks_[b].size, blocks_[b].serial);
    };
    // The lowest bucket that has a block which is large enough has the best one.
    for (bucket = &buckets_[bucket_of(size)]; bucket != buckets_.end(); ++bucket) {
      found = bucket->rend();
      for (auto it = bucket->rbegin(); it != bucket->rend(); ++it) {
        if (is_large_enough(*it) && (found == bucket->rend() || is_better(*it, *found))) found = it;
      }
      if (found != bucket->rend()) break;
    }
    if (bucket == buckets_.end()) return kNoPinned;
  }
  if (found == bucket->rend()) return kNoPinned;
  const PinnedId id = *found;
  bucket->erase(std::next(found).base());
  return id;
}

void PinnedAllocator::record_event(PinnedId id, StreamId stream) {
  if (id == kNoPinned) return;
  ZP_CHECK(stream >= 0 && stream < kMaxStreams, "a stream outside 0..63");
  ZP_CHECK(blocks_.at(static_cast<std::size_t>(id)).is_allocated, "a block that is not allocated");
  blocks_[id].stream_uses |= std::uint64_t{1} << stream;
}

void PinnedAllocator::free(PinnedId id, StreamClocks clocks) {
  if (id == kNoPinned) return;
  Block& block = blocks_.at(static_cast<std::size_t>(id));
  ZP_CHECK(block.is_allocated, "a block that is not allocated");
  block.is_allocated = false;
  if (block.stream_uses == 0) {
    make_free(id);
    return;
  }
  for (; block.stream_uses != 0; block.stream_uses &= block.stream_uses - 1) {
    const StreamId stream = std::countr_zero(block.stream_uses);
    events_.push_back({queued(clocks, stream), stream, id});
    ++block.events;
  }
}

// One queue for all streams, from its oldest event up to the first that is not complete: what comes
// behind it waits too. Source: process_events.
void PinnedAllocator::process_events(StreamClocks clocks) {
  while (first_event_ < events_.size()) {
    const Event& event = events_[first_event_];
    if (!is_complete(clocks, event.stream, event.ticket)) break;
    ++first_event_;
    if (--blocks_[event.block].events == 0) make_free(event.block);
  }
  if (first_event_ > events_.size() / 2) {
    events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(first_event_));
    first_event_ = 0;
  }
}

void PinnedAllocator::make_free(PinnedId id) {
  const Block& block = blocks_[id];
  stats_.allocation.decrease(1);
  stats_.allocated_bytes.decrease(block.size);
  if (block.is_cached_when_free) {
    buckets_[bucket_of(block.size)].push_back(id);
  } else {
    unpin(id);
  }
}

void PinnedAllocator::unpin(PinnedId id) {
  Block& block = blocks_[id];
  stats_.segment.decrease(1);
  stats_.reserved_bytes.decrease(block.size);
  block = Block{};
  unused_.push_back(id);
}

void PinnedAllocator::empty_cache(StreamClocks clocks) {
  process_events(clocks);
  for (std::vector<PinnedId>& bucket : buckets_) {
    for (const PinnedId id : bucket) unpin(id);
    bucket.clear();
  }
}

Bytes PinnedAllocator::size(PinnedId id) const {
  ZP_CHECK(blocks_.at(static_cast<std::size_t>(id)).is_allocated, "a block that is not allocated");
  return Bytes::of(blocks_[id].size);
}

}  // namespace zeroplan
