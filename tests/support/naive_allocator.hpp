// PyTorch's caching allocator by brute force, to hold the fast one against. Written from the rules
// alone: a segment knows which ranges are in use, and everything else, free ranges, best fits,
// statistics, is worked out anew by scanning whenever it is asked for. No lists, no merging, no
// running totals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "simulator/allocator_options.hpp"
#include "simulator/stream_clock.hpp"

namespace zeroplan::testing {

class NaiveAllocator {
 public:
  enum class Outcome { allocated, out_of_memory };
  struct Place {
    std::int64_t segment = 0;  // a serial number
    std::int64_t offset = 0;
    std::int64_t size = 0;
  };
  struct Totals {
    std::int64_t allocation = 0, allocated = 0, active = 0, active_bytes = 0, requested = 0;
    std::int64_t segments = 0, reserved = 0, split = 0, split_bytes = 0;
    friend bool operator==(const Totals&, const Totals&) = default;
  };

  // `wait` makes the GPU finish everything; it is called where blocks wait for events and memory
  // has to be given back.
  NaiveAllocator(const simulator::AllocatorOptions& chosen, std::function<void()> wait)
      : options(chosen), wait_(std::move(wait)) {}

  simulator::AllocatorOptions options;
  std::int64_t retries = 0, ooms = 0, syncs = 0, device_allocs = 0, device_frees = 0;
  std::int64_t peak_allocated = 0, peak_reserved = 0;

  Outcome allocate(int tensor,
                   std::int64_t size,
                   simulator::StreamId stream,
                   simulator::StreamClocks clocks) {
    let_go_of_completed(clocks);
    const std::int64_t r = simulator::round_size(Bytes::of(size), options).count();
    const bool small = r <= 1048576;
    const std::int64_t seg = simulator::segment_size(Bytes::of(r), options).count();
    std::optional<Spot> spot = cached(r, stream, small);
    if (!spot) {
      if (options.collects_garbage()) collect_garbage();
      spot = from_device(r, seg, stream, small);
      if (!spot && give_back_oversize(r, stream, small)) spot = from_device(r, seg, stream, small);
      if (!spot) {
        give_back_everything();
        ++retries;
        spot = from_device(r, seg, stream, small);
      }
      if (!spot) {
        ++ooms;
        return Outcome::out_of_memory;
      }
    }
    Segment& segment = segments_.at(spot->segment);
    const std::int64_t left = spot->size - r;
    const bool split = small || options.expandable_segments
                           ? left >= 512
                           : r < options.max_split_size.count() && left > 1048576;
    segment.used[spot->offset] = {tensor, split ? r : spot->size, size, false, {}, {}};
    home_[tensor] = {spot->segment, spot->offset, split ? r : spot->size};
    peak_allocated = std::max(peak_allocated, totals().allocated);
    return Outcome::allocated;
  }

  void record_stream(int tensor, simulator::StreamId stream) {
    Used& used = at(tensor);
    if (stream != segments_.at(home_.at(tensor).segment).stream) used.other_streams[stream] = true;
  }

  void free(int tensor, simulator::StreamClocks clocks) {
    Used& used = at(tensor);
    used.dead = true;
    for (const auto& [stream, yes] : used.other_streams) {
      used.waits.emplace_back(stream, simulator::queued(clocks, stream));
    }
    const Place place = home_.at(tensor);
    home_.erase(tensor);
    if (used.waits.empty()) vacate(place.segment, place.offset);
  }

  void empty_cache() { give_back_everything(); }

  const Place& place(int tensor) const { return home_.at(tensor); }
  bool has_segment(std::int64_t serial) const { return segments_.contains(serial); }

  // Of one pool, or of both.
  Totals totals(std::optional<bool> small = std::nullopt) const {
    Totals t;
    for (const auto& [serial, segment] : segments_) {
      if (small && *small != segment.small) continue;
      if (!segment.expandable()) ++t.segments;
      t.reserved += segment.mapped_bytes();
      for (const auto& [offset, used] : segment.used) {
        ++t.active;
        t.active_bytes += used.size;
        t.requested += used.requested;
        if (used.dead) continue;
        ++t.allocation;
        t.allocated += used.size;
      }
      if (segment.expandable() || segment.used.empty()) continue;
      for (const Range& range : segment.free_ranges()) {
        ++t.split;
        t.split_bytes += range.size;
      }
    }
    return t;
  }

 private:
  struct Used {
    int tensor = 0;
    std::int64_t size = 0, requested = 0;
    bool dead = false;
    std::map<simulator::StreamId, bool> other_streams;
    std::vector<std::pair<simulator::StreamId, std::int64_t>> waits;
  };
  struct Range {
    std::int64_t offset = 0, size = 0;
  };
  struct Segment {
    simulator::StreamId stream = 0;
    bool small = false;
    std::int64_t size = 0, page = 0;  // page: 0 for what cudaMalloc gave
    std::vector<bool> mapped;         // pages
    std::map<std::int64_t, Used> used;
    std::int64_t free_since = 0;

    bool expandable() const { return page != 0; }
    std::int64_t mapped_bytes() const {
      return expandable() ? page * std::count(mapped.begin(), mapped.end(), true) : size;
    }
    bool is_mapped(std::int64_t offset) const {
      return !expandable() || mapped[static_cast<std::size_t>(offset / page)];
    }
    // The end of the page, or of the segment without pages.
    std::int64_t page_end(std::int64_t offset) const {
      return expandable() ? (offset / page + 1) * page : size;
    }
    // Maximal ranges that are not in use and all mapped (or all unmapped).
    std::vector<Range> unused_ranges(bool want_mapped) const {
      std::vector<Range> ranges;
      std::int64_t at = 0;
      while (at < size) {
        const auto live = used.find(at);
        if (live != used.end()) {
          at += live->second.size;
          continue;
        }
        const auto next = used.upper_bound(at);
        const std::int64_t end = std::min(page_end(at), next == used.end() ? size : next->first);
        if (is_mapped(at) == want_mapped) {
          if (!ranges.empty() && ranges.back().offset + ranges.back().size == at) {
            ranges.back().size += end - at;
          } else {
            ranges.push_back({at, end - at});
          }
        }
        at = end;
      }
      return ranges;
    }
    std::vector<Range> free_ranges() const { return unused_ranges(true); }
  };
  struct Spot {
    std::int64_t segment = 0, offset = 0, size = 0;
  };

  Used& at(int tensor) {
    const Place& place = home_.at(tensor);
    return segments_.at(place.segment).used.at(place.offset);
  }

  void vacate(std::int64_t serial, std::int64_t offset) {
    Segment& segment = segments_.at(serial);
    segment.used.erase(offset);
    segment.free_since = look_ups_;
  }

  void let_go_of_completed(simulator::StreamClocks clocks) {
    for (auto& [serial, segment] : segments_) {
      std::vector<std::int64_t> done;
      for (auto& [offset, used] : segment.used) {
        if (!used.dead) continue;
        std::erase_if(used.waits, [&](const auto& w) {
          return simulator::is_complete(clocks, w.first, w.second);
        });
        if (used.waits.empty()) done.push_back(offset);
      }
      for (const std::int64_t offset : done) vacate(serial, offset);
    }
  }

  // All free ranges of a stream and pool, by size and then by address, or by the age of their
  // segment and then by address.
  std::vector<Spot> free_spots(simulator::StreamId stream, bool small) const {
    std::vector<Spot> spots;
    for (const auto& [serial, segment] : segments_) {
      if (segment.stream != stream || segment.small != small) continue;
      for (const Range& r : segment.free_ranges()) spots.push_back({serial, r.offset, r.size});
    }
    const bool oldest_first = options.oldest_segment_first;
    std::stable_sort(spots.begin(), spots.end(), [&](const Spot& a, const Spot& b) {
      if (a.size != b.size) return a.size < b.size;
      return oldest_first && a.segment > b.segment;  // serial numbers fall
    });
    return spots;
  }

  std::int64_t reach(const Spot& spot) const {
    const Segment& segment = segments_.at(spot.segment);
    const std::int64_t end = spot.offset + spot.size;
    for (const Range& r : segment.unused_ranges(false)) {
      if (r.offset == end) return spot.size + r.size;
    }
    return spot.size;
  }

  std::optional<Spot> cached(std::int64_t r, simulator::StreamId stream, bool small) {
    if (options.collects_garbage() && !small) ++look_ups_;
    std::vector<Spot> spots = free_spots(stream, small);
    std::erase_if(spots, [&](const Spot& s) { return s.size < r; });
    const auto expandable = [&](const Spot& s) { return segments_.at(s.segment).expandable(); };
    if (!options.expandable_segments) std::erase_if(spots, expandable);
    if (spots.empty()) return std::nullopt;
    std::size_t i = 0;
    while (expandable(spots[i]) && i + 1 < spots.size() && reach(spots[i + 1]) < reach(spots[i])) {
      ++i;
    }
    const std::int64_t oversize = options.max_split_size.count();
    if (r < oversize && spots[i].size >= oversize) return std::nullopt;
    if (r >= oversize && spots[i].size >= r + options.max_non_split_rounding.count()) {
      return std::nullopt;
    }
    return spots[i];
  }

  std::int64_t reserved() const { return totals().reserved; }

  std::optional<Spot> from_device(std::int64_t r,
                                  std::int64_t seg,
                                  simulator::StreamId stream,
                                  bool small) {
    if (options.allowed && reserved() + seg > options.allowed->count()) return std::nullopt;
    if (options.expandable_segments) return expand(r, stream, small);
    if (reserved() + seg > options.available.count()) return std::nullopt;
    ++device_allocs;
    segments_[--serial_] = {stream, small, seg, 0, {}, {}, look_ups_};
    peak_reserved = std::max(peak_reserved, reserved());
    return Spot{serial_, 0, seg};
  }

  // Where r bytes that are not in use begin, at or just before unmapped memory.
  std::optional<Spot> room_to_expand(std::int64_t r, simulator::StreamId stream, bool small) const {
    for (const auto& [serial, segment] : segments_) {
      if (!segment.expandable() || segment.stream != stream || segment.small != small) continue;
      for (const Range& unmapped : segment.unused_ranges(false)) {
        std::int64_t start = unmapped.offset;
        for (const Range& f : segment.free_ranges()) {
          if (f.offset + f.size == unmapped.offset) start = f.offset;
        }
        const auto next = segment.used.lower_bound(start);
        const std::int64_t end = next == segment.used.end() ? segment.size : next->first;
        if (end - start >= r) return Spot{serial, start, end - start};
      }
    }
    return std::nullopt;
  }

  std::optional<Spot> expand(std::int64_t r, simulator::StreamId stream, bool small) {
    std::optional<Spot> spot = room_to_expand(r, stream, small);
    if (!spot) {
      const std::int64_t page = small ? 2097152 : options.large_segment_size.count();
      const std::int64_t total = options.device_total.count();
      const std::int64_t pages = (total + total / 8 + page - 1) / page;
      if (pages * page < r) return std::nullopt;
      const std::vector<bool> none(static_cast<std::size_t>(pages), false);
      segments_[--serial_] = {stream, small, pages * page, page, none, {}, look_ups_};
      spot = Spot{serial_, 0, pages * page};
    }
    Segment& segment = segments_.at(spot->segment);
    // Each run of unmapped pages in the way is mapped at once or not at all.
    std::int64_t at = spot->offset;
    while (at < spot->offset + r) {
      if (segment.is_mapped(at)) {
        at = segment.page_end(at);
        continue;
      }
      std::int64_t end = at;
      while (end < spot->offset + r && !segment.is_mapped(end)) end += segment.page;
      if (reserved() + end - at > options.available.count()) return std::nullopt;
      ++device_allocs;
      for (; at < end; at += segment.page) {
        segment.mapped[static_cast<std::size_t>(at / segment.page)] = true;
      }
      peak_reserved = std::max(peak_reserved, reserved());
    }
    for (const Range& f : segment.free_ranges()) {
      if (f.offset == spot->offset) return Spot{spot->segment, f.offset, f.size};
    }
    return std::nullopt;
  }

  void collect_garbage() {
    const auto threshold = static_cast<std::int64_t>(options.garbage_collection_threshold *
                                                     static_cast<double>(options.allowed->count()));
    std::int64_t over = reserved() - threshold;
    while (over > 0) {
      std::map<std::int64_t, std::int64_t> ages;
      std::int64_t sum = 0;
      for (const auto& [serial, segment] : segments_) {
        if (segment.small || segment.expandable() || !segment.used.empty()) continue;
        ages[serial] = look_ups_ - segment.free_since;
        sum += ages[serial];
      }
      if (ages.empty()) return;
      const double mean = static_cast<double>(sum) / static_cast<double>(ages.size());
      for (const auto& [serial, age] : ages) {
        if (static_cast<double>(age) < mean) continue;
        over -= segments_.at(serial).size;
        ++device_frees;
        segments_.erase(serial);
      }
    }
  }

  // Only cudaMalloc's segments without a tensor can go; by size and then by address.
  bool give_back_oversize(std::int64_t r, simulator::StreamId stream, bool small) {
    if (options.max_split_size.is_infinite()) return false;
    const std::int64_t wanted = std::max(r, options.max_split_size.count());
    std::vector<Spot> spots = free_spots(stream, small);
    std::erase_if(spots, [&](const Spot& s) {
      const Segment& segment = segments_.at(s.segment);
      return segment.expandable() || !segment.used.empty() ||
             s.size < options.max_split_size.count();
    });
    for (const Spot& s : spots) {
      if (s.size < wanted) continue;
      ++device_frees;
      segments_.erase(s.segment);
      return true;
    }
    std::int64_t sum = 0;
    for (; sum < wanted && !spots.empty(); spots.pop_back()) {
      sum += spots.back().size;
      ++device_frees;
      segments_.erase(spots.back().segment);
    }
    return sum >= wanted;
  }

  void give_back_everything() {
    ++syncs;
    std::vector<std::pair<std::int64_t, std::int64_t>> dead;
    for (auto& [serial, segment] : segments_) {
      for (const auto& [offset, used] : segment.used) {
        if (used.dead) dead.emplace_back(serial, offset);
      }
    }
    if (!dead.empty()) wait_();
    for (const auto& [serial, offset] : dead) vacate(serial, offset);
    for (auto it = segments_.begin(); it != segments_.end();) {
      Segment& segment = it->second;
      const bool had_pages = segment.expandable() && segment.mapped_bytes() > 0;
      if (segment.expandable()) unmap_free_pages(segment);
      if (!segment.expandable() && segment.used.empty()) ++device_frees;
      const bool goes = segment.used.empty() &&
                        (!segment.expandable() || (had_pages && segment.mapped_bytes() == 0));
      it = goes ? segments_.erase(it) : std::next(it);
    }
  }

  void unmap_free_pages(Segment& segment) {
    for (const Range& r : segment.free_ranges()) {
      const std::int64_t begin = (r.offset + segment.page - 1) / segment.page;
      const std::int64_t end = (r.offset + r.size) / segment.page;
      if (begin < end) ++device_frees;
      for (std::int64_t page = begin; page < end; ++page) {
        segment.mapped[static_cast<std::size_t>(page)] = false;
      }
    }
  }

  std::function<void()> wait_;
  std::map<std::int64_t, Segment> segments_;  // by serial number, which is the order of addresses
  std::map<int, Place> home_;
  std::int64_t serial_ = 0;
  std::int64_t look_ups_ = 0;  // of the large pool
};

}  // namespace zeroplan::testing
