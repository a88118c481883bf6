// The fast allocator against the brute-force one, over random traces.
#include <map>
#include <random>
#include <string>
#include <vector>

#include "simulator/allocator.hpp"
#include "tests/catch.hpp"
#include "tests/support/naive_allocator.hpp"

using namespace zeroplan;
using zeroplan::testing::NaiveAllocator;

namespace {

NaiveAllocator::Totals totals_of(const simulator::PoolStats& pool) {
  return {.allocation = pool.allocation.current,
          .allocated = pool.allocated_bytes.current,
          .active = pool.active.current,
          .active_bytes = pool.active_bytes.current,
          .requested = pool.requested_bytes.current,
          .segments = pool.segment.current,
          .reserved = pool.reserved_bytes.current,
          .split = pool.inactive_split.current,
          .split_bytes = pool.inactive_split_bytes.current};
}

struct Play {
  simulator::AllocatorOptions options;
  int streams = 1;
  std::int64_t most_live = 60;
  int empty_cache_every = 0;  // in operations; 0: never
  bool toggles_expandable = false;
};

// One random trace, played on both; every step compares everything that can be seen.
class Player {
 public:
  Player(const Play& play, unsigned seed)
      : play_(play),
        random_(seed),
        clocks_(static_cast<std::size_t>(play.streams)),
        fast_(play.options),
        naive_(play.options, [this] { wait(); }) {}

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      step(i);
      compare();
    }
    INFO("retries " << fast_.stats().num_alloc_retries << ", ooms " << fast_.stats().num_ooms);
    fast_.check_invariants();
  }

  const simulator::CachingAllocator& fast() const { return fast_; }

 private:
  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

  void wait() {
    for (simulator::StreamClock& clock : clocks_) clock.completed = clock.queued;
  }

  std::int64_t random_size() {
    switch (below(8)) {
      case 0:
        return 1 + below(2000);
      case 1:
        return 1 + below(1 << 20);
      case 2:
        return (1 << 20) - 512 + below(1025);
      case 3:
        return (1 << 20) + below(9 << 20);
      case 4:
        return (10 << 20) - 512 + below(1025);
      case 5:
        return (2 << 20) * (1 + below(20));
      case 6:
        return 1 + below(60 << 20);
      default:
        return 512 * (1 + below(40));
    }
  }

  void step(int i) {
    const std::int64_t kind = below(20);
    for (simulator::StreamClock& clock : clocks_) {
      if (below(3) == 0) ++clock.queued;
      if (below(3) == 0) clock.completed += below(clock.queued - clock.completed + 1);
    }
    if (play_.empty_cache_every != 0 && i % play_.empty_cache_every == 0) {
      // The host waits on both before anything is given back.
      wait();
      CHECK(fast_.empty_cache(clocks_));
      naive_.empty_cache();
    } else if (play_.toggles_expandable && i % 97 == 0) {
      const bool on = below(2) == 0;
      fast_.set_expandable_segments(on);
      naive_.options.expandable_segments = on;
    } else if (live_.empty() ||
               (kind < 11 && static_cast<std::int64_t>(live_.size()) < play_.most_live)) {
      allocate();
    } else if (kind < 13) {
      const auto& [tensor, block] = random_live();
      const auto stream = static_cast<simulator::StreamId>(below(play_.streams));
      fast_.record_stream(block, stream);
      naive_.record_stream(tensor, stream);
    } else {
      const auto [tensor, block] = random_live();
      live_.erase(tensor);
      fast_.free(block, clocks_);
      naive_.free(tensor, clocks_);
    }
  }

  std::pair<const int, simulator::BlockId>& random_live() {
    return *std::next(live_.begin(), below(static_cast<std::int64_t>(live_.size())));
  }

  void allocate() {
    const int tensor = next_tensor_++;
    const std::int64_t size = random_size();
    const auto stream = static_cast<simulator::StreamId>(below(play_.streams));
    // Waiting moves the clocks: both must begin with the same ones.
    const std::vector<simulator::StreamClock> before = clocks_;
    simulator::Allocation got =
        fast_.allocate({Bytes::of(size), stream, static_cast<std::uint64_t>(tensor)}, clocks_);
    if (got.outcome == simulator::AllocationOutcome::must_synchronize) {
      wait();
      got = fast_.continue_allocation(clocks_);
    }
    clocks_ = before;
    const NaiveAllocator::Outcome expected = naive_.allocate(tensor, size, stream, clocks_);
    REQUIRE((got.outcome == simulator::AllocationOutcome::allocated) ==
            (expected == NaiveAllocator::Outcome::allocated));
    if (got.outcome != simulator::AllocationOutcome::allocated) return;
    live_[tensor] = got.block;
    // The same place: addresses differ by where each begins to count a segment.
    const NaiveAllocator::Place& place = naive_.place(tensor);
    CHECK(fast_.size(got.block).count() == place.size);
    std::erase_if(bases_, [&](const auto& base) { return !naive_.has_segment(base.first); });
    const std::int64_t base = fast_.address(got.block) - place.offset;
    CHECK(bases_.try_emplace(place.segment, base).first->second == base);
  }

  void compare() {
    const simulator::MemoryStats& stats = fast_.stats();
    REQUIRE(totals_of(stats.all()) == naive_.totals());
    REQUIRE(totals_of(stats.of(simulator::StatPool::small_pool)) == naive_.totals(true));
    REQUIRE(totals_of(stats.of(simulator::StatPool::large_pool)) == naive_.totals(false));
    REQUIRE(stats.num_alloc_retries == naive_.retries);
    REQUIRE(stats.num_ooms == naive_.ooms);
    REQUIRE(stats.num_sync_all_streams == naive_.syncs);
    REQUIRE(stats.num_device_alloc == naive_.device_allocs);
    REQUIRE(stats.num_device_free == naive_.device_frees);
    REQUIRE(stats.peak_allocated().count() == naive_.peak_allocated);
    REQUIRE(stats.peak_reserved().count() == naive_.peak_reserved);
    if (++compared_ % 16 == 0) fast_.check_invariants();
  }

  Play play_;
  std::mt19937 random_;
  std::vector<simulator::StreamClock> clocks_;
  simulator::CachingAllocator fast_;
  NaiveAllocator naive_;
  std::map<int, simulator::BlockId> live_;
  std::map<std::int64_t, std::int64_t> bases_;
  int next_tensor_ = 0;
  int compared_ = 0;
};

// Plays traces under both orders of equal blocks and returns how often cached memory was given back
// and how often memory ran out, so that a test can see that it went where it meant to go.
std::pair<std::int64_t, std::int64_t> play(Play play, unsigned seed, int operations = 600) {
  std::pair<std::int64_t, std::int64_t> both;
  for (const bool oldest_segment_first : {false, true}) {
    play.options.oldest_segment_first = oldest_segment_first;
    Player player(play, seed);
    player.run(operations);
    both.first += player.fast().stats().num_device_free;
    both.second += player.fast().stats().num_ooms;
  }
  return both;
}

simulator::AllocatorOptions device(std::int64_t mebibytes) {
  simulator::AllocatorOptions options;
  options.device_total = Bytes::mib(mebibytes);
  options.available = Bytes::mib(mebibytes);
  return options;
}

}  // namespace

TEST_CASE("random traces: one stream, unlimited memory") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    CHECK(play({}, seed).second == 0);
  }
}

TEST_CASE("random traces: more free blocks than a run of the free list holds") {
  for (unsigned seed = 0; seed < 2; ++seed) {
    CAPTURE(seed);
    play({.most_live = 1000}, seed, 3000);
  }
}

TEST_CASE("random traces: four streams, deferred frees") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    play({.streams = 4, .empty_cache_every = 53}, seed);
  }
}

TEST_CASE("random traces: a full device flushes, retries and runs out") {
  std::int64_t frees = 0;
  std::int64_t ooms = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const auto [f, o] = play({.options = device(300 + 50 * (seed % 4)), .streams = 3}, seed);
    frees += f;
    ooms += o;
  }
  CHECK(frees > 100);
  CHECK(ooms > 20);
}

TEST_CASE("random traces: a memory fraction, garbage collection, oversize blocks") {
  std::int64_t frees = 0;
  std::int64_t ooms = 0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    simulator::AllocatorOptions options = device(4096);
    options.allowed = Bytes::mib(350 + 60 * (seed % 3));
    if (seed % 2 == 0) options.garbage_collection_threshold = 0.3 + 0.1 * (seed % 5);
    if (seed % 4 < 2) options.max_split_size = Bytes::mib(21 + 7 * (seed % 3));
    if (seed % 8 < 4) options.max_non_split_rounding = Bytes::mib(30);
    const auto [f, o] = play({.options = options, .streams = 2}, seed);
    frees += f;
    ooms += o;
  }
  CHECK(frees > 100);
  CHECK(ooms > 20);
}

TEST_CASE("random traces: rounding to divisions of powers of two") {
  for (unsigned seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    simulator::AllocatorOptions options = device(600);
    options.roundup_power2_divisions.fill(std::int64_t{1} << (1 + seed));
    play({.options = options, .streams = 2}, seed);
  }
}

TEST_CASE("random traces: expandable segments") {
  std::int64_t frees = 0;
  std::int64_t ooms = 0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    simulator::AllocatorOptions options = device(300 + 100 * (seed % 3));
    options.expandable_segments = true;
    if (seed % 4 == 3) options.allowed = Bytes::mib(400);
    const auto [f, o] = play({.options = options,
                              .streams = 1 + static_cast<int>(seed % 3),
                              .empty_cache_every = seed % 2 == 0 ? 0 : 41},
                             seed);
    frees += f;
    ooms += o;
  }
  CHECK(frees > 100);
  CHECK(ooms > 20);
}

TEST_CASE("random traces: expandable segments switched on and off") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    simulator::AllocatorOptions options = device(500);
    options.expandable_segments = seed % 2 == 0;
    play({.options = options, .streams = 2, .toggles_expandable = true}, seed);
  }
}
