// Canonical states: what counting equal micro-steps and steps rests on.
#include <map>
#include <random>
#include <vector>

#include "simulator/allocator.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

using Clocks = std::vector<simulator::StreamClock>;

simulator::AllocatorOptions device(bool expandable = false) {
  simulator::AllocatorOptions options;
  options.device_total = 1_GiB;
  options.available = 600_MiB;
  options.expandable_segments = expandable;
  return options;
}

// An allocator and its live tensors by tag; plays the same random future as another one.
struct World {
  simulator::CachingAllocator allocator;
  Clocks clocks = Clocks(3);
  std::map<std::uint64_t, simulator::BlockId> live;

  void step(std::mt19937& random, std::uint64_t tag) {
    const auto r = [&](std::uint32_t n) { return random() % n; };
    const std::uint32_t kind = r(10);
    const std::uint32_t pick = r(1u << 20);
    const auto stream = static_cast<simulator::StreamId>(r(3));
    const auto size = 1 + static_cast<std::int64_t>(r(1u << (6 + r(19))));
    if (r(4) == 0) {
      clocks[1].queued += 1;
      clocks[1].completed = clocks[1].queued - 1;
    }
    if (kind < 5) {
      simulator::Allocation got = allocator.allocate({Bytes::of(size), stream, tag}, clocks);
      if (got.outcome == simulator::AllocationOutcome::must_synchronize) {
        for (simulator::StreamClock& clock : clocks) clock.completed = clock.queued;
        got = allocator.continue_allocation(clocks);
      }
      if (got.outcome == simulator::AllocationOutcome::allocated) live[tag] = got.block;
      return;
    }
    if (live.empty()) return;
    auto it = live.begin();
    std::advance(it, pick % live.size());
    if (kind < 7) allocator.record_stream(it->second, stream);
    allocator.free(it->second, clocks);
    live.erase(it);
  }
};

struct Change {
  std::int64_t allocated, reserved, active, split, device_allocs, device_frees, retries;
  friend bool operator==(const Change&, const Change&) = default;
};

Change change(const simulator::MemoryStats& now, const simulator::MemoryStats& then) {
  return {now.all().allocated_bytes.current - then.all().allocated_bytes.current,
          now.all().reserved_bytes.current - then.all().reserved_bytes.current,
          now.all().active_bytes.current - then.all().active_bytes.current,
          now.all().inactive_split_bytes.current - then.all().inactive_split_bytes.current,
          now.num_device_alloc - then.num_device_alloc,
          now.num_device_free - then.num_device_free,
          now.num_alloc_retries - then.num_alloc_retries};
}

// Segments and handles come and go, so that addresses and handles differ ever after.
void shake(World& world) {
  std::vector<simulator::BlockId> blocks;
  for (int i = 0; i < 9; ++i) {
    blocks.push_back(world.allocator.allocate({Bytes::mib(11 + i), 2}, world.clocks).block);
  }
  for (std::size_t i : {3, 1, 4, 0, 5, 2, 6, 8, 7}) world.allocator.free(blocks[i], world.clocks);
  REQUIRE(world.allocator.empty_cache(world.clocks));
}

}  // namespace

TEST_CASE("allocators with equal canonical states behave alike whatever their histories were") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    World a{simulator::CachingAllocator(device(seed % 2 == 1)), Clocks(3), {}};
    World b = a;
    shake(b);
    std::mt19937 past(seed), past_again(seed);
    for (std::uint64_t i = 0; i < 120; ++i) a.step(past, i);
    for (std::uint64_t i = 0; i < 120; ++i) b.step(past_again, i);
    REQUIRE(a.allocator.canonical_state(a.clocks) == b.allocator.canonical_state(b.clocks));
    REQUIRE(a.allocator.fingerprint(a.clocks) == b.allocator.fingerprint(b.clocks));
    const simulator::MemoryStats then_a = a.allocator.stats();
    const simulator::MemoryStats then_b = b.allocator.stats();
    std::mt19937 future(seed + 100), future_again(seed + 100);
    for (std::uint64_t i = 1000; i < 1200; ++i) {
      a.step(future, i);
      b.step(future_again, i);
      REQUIRE(change(a.allocator.stats(), then_a) == change(b.allocator.stats(), then_b));
    }
    CHECK(a.allocator.canonical_state(a.clocks) == b.allocator.canonical_state(b.clocks));
  }
}

TEST_CASE("a canonical state tells apart what the future can tell apart") {
  const auto state = [](auto&& build) {
    simulator::CachingAllocator allocator(device());
    Clocks clocks(3);
    build(allocator, clocks);
    return allocator.canonical_state(clocks);
  };
  const auto one = [&](Bytes size, simulator::StreamId stream, std::uint64_t tag) {
    return state([&](simulator::CachingAllocator& a, Clocks& c) {
      a.allocate({size, stream, tag}, c);
    });
  };
  const auto base = one(3_MiB, 0, 1);
  CHECK(base == one(3_MiB, 0, 1));
  CHECK(base != one(4_MiB, 0, 1));
  CHECK(base != one(3_MiB, 1, 1));
  CHECK(base != one(3_MiB, 0, 2));
  CHECK(base != one(512_KiB, 0, 1));
  const auto freed = [&](bool used_elsewhere, std::int64_t lag) {
    return state([&](simulator::CachingAllocator& a, Clocks& c) {
      const simulator::BlockId block = a.allocate({3_MiB, 0, 1}, c).block;
      c[1].queued = 1;
      if (used_elsewhere) a.record_stream(block, 1);
      a.free(block, c);
      c[1].queued += lag;
    });
  };
  CHECK(freed(true, 0) != freed(false, 0));
  CHECK(freed(true, 0) != freed(true, 1));
  CHECK(freed(false, 0) == freed(false, 1));
}

TEST_CASE("micro-batches that repeat reach one state and keep it") {
  simulator::CachingAllocator allocator(device());
  std::vector<Fingerprint> prints;
  std::vector<std::int64_t> weights{30, 7, 3, 1};
  for (std::uint64_t i = 0; i < weights.size(); ++i) {
    allocator.allocate({Bytes::mib(weights[i]), 0, i}, {});
  }
  for (int micro_batch = 0; micro_batch < 6; ++micro_batch) {
    std::vector<simulator::BlockId> saved;
    for (std::uint64_t layer = 0; layer < 12; ++layer) {
      const auto kib = static_cast<std::int64_t>(300 + 777 * (layer % 3));
      saved.push_back(allocator.allocate({Bytes::kib(kib), 0, 100 + layer}, {}).block);
      allocator.free(allocator.allocate({Bytes::kib(3 * kib), 0, 50}, {}).block, {});
    }
    while (!saved.empty()) {
      const simulator::BlockId grad = allocator.allocate({5_MiB, 0, 60}, {}).block;
      allocator.free(saved.back(), {});
      saved.pop_back();
      allocator.free(grad, {});
    }
    prints.push_back(allocator.fingerprint({}));
  }
  CHECK(prints[1] == prints[5]);
  CHECK(prints[1] == prints[2]);
}

TEST_CASE("a copy of the allocator is an allocator of its own") {
  simulator::CachingAllocator a(device());
  const simulator::BlockId block = a.allocate({3_MiB}, {}).block;
  simulator::CachingAllocator b = a;
  b.free(block, {});
  b.allocate({50_MiB}, {});
  CHECK(a.size(block) == 3_MiB);
  CHECK(a.stats().reserved() == 20_MiB);
  a.check_invariants();
  b.check_invariants();
}
