// Who has which bytes of a device: against a backend that only counts, under random use.
#include "runtime/device/arena.hpp"

#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "simulator/allocator.hpp"
#include "tests/catch.hpp"

namespace zeroplan::runtime {
namespace {

class Backend : public Arena::Backend {
 public:
  Bytes room = Bytes::mib(64);
  bool passes = false;  // fences are behind us
  int waits = 0, drains = 0;

  std::byte* take_segment(Bytes bytes) override {
    if (bytes > room) return nullptr;
    room -= bytes;
    return static_cast<std::byte*>(
        std::aligned_alloc(512, static_cast<std::size_t>(round_up(bytes.count(), 512))));
  }
  void return_segment(std::byte* data, Bytes bytes) noexcept override {
    room += bytes;
    std::free(data);
  }
  Fence record(Queue) override { return std::make_shared<int>(0); }
  bool passed(const Fence&) override { return passes; }
  void wait(Queue, const Fence&) override { ++waits; }
  void drain() override { ++drains; }
};

TEST_CASE("blocks do not overlap, neighbours join, and segments go back in the end") {
  Backend backend;
  {
    Arena arena(backend, Bytes::mib(1));
    std::mt19937 random(7);
    std::map<std::byte*, std::int64_t> held;
    for (int i = 0; i < 4000; ++i) {
      if (held.size() < 40 && random() % 2 == 0) {
        const std::int64_t size = 512 * (1 + static_cast<std::int64_t>(random() % 300));
        std::byte* data = arena.allocate(Bytes::of(size), Queue::compute);
        REQUIRE(data != nullptr);
        CHECK(reinterpret_cast<std::uintptr_t>(data) % 512 == 0);
        const auto next = held.lower_bound(data);
        if (next != held.end()) CHECK(data + size <= next->first);
        if (next != held.begin()) CHECK(std::prev(next)->first + std::prev(next)->second <= data);
        CHECK(arena.holds(data + size - 1));
        held[data] = size;
      } else if (!held.empty()) {
        auto at = held.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random() % held.size()));
        arena.release(at->first);
        held.erase(at);
      }
    }
    for (const auto& [data, size] : held) arena.release(data);
    const Bytes reserved = arena.reserved();
    std::byte* whole = arena.allocate(Bytes::mib(1), Queue::compute);
    CHECK(arena.reserved() == reserved);  // a whole segment is one block again
    arena.release(whole);
    CHECK_FALSE(arena.holds(reinterpret_cast<std::byte*>(&backend)));
  }
  CHECK(backend.room == Bytes::mib(64));
  CHECK(backend.waits == 0);
}

// Addresses that nobody reads, one segment below the other, as drivers map them and as the
// simulator's allocator has them.
class Addresses : public Backend {
 public:
  std::byte* take_segment(Bytes bytes) override {
    if (bytes > room) return nullptr;
    room -= bytes;
    next_ -= std::uintptr_t{1} << 32;
    return reinterpret_cast<std::byte*>(next_);
  }
  void return_segment(std::byte*, Bytes bytes) noexcept override { room += bytes; }

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << 46;
};

// Predictions of what the runtime reserves come from the simulator's allocator with this option.
TEST_CASE("the simulator reserves what the arena does") {
  for (const unsigned seed : {1U, 2U, 3U, 4U}) {
    // The second half meets the end of the GPU.
    const Bytes room = seed > 2 ? Bytes::mib(900) : Bytes::gib(64);
    Addresses backend;
    backend.room = room;
    Arena arena(backend, Bytes::mib(64));
    simulator::AllocatorOptions options;
    options.arena_segment = Bytes::mib(64);
    options.available = room;
    int refused = 0;
    simulator::CachingAllocator simulated(options);
    std::mt19937 random(seed);
    std::vector<std::pair<std::byte*, simulator::BlockId>> held;
    for (int i = 0; i < 3000; ++i) {
      if (held.size() < 60 && random() % 5 < 3) {
        // From 512 bytes to 256 MiB, as many of each power of two.
        const std::int64_t most = std::int64_t{1} << (9 + random() % 20);
        const Bytes size = Bytes::of(round_up(1 + static_cast<std::int64_t>(random()) % most, 512));
        std::byte* const data = arena.allocate(size, Queue::compute);
        const simulator::Allocation block = simulated.allocate({.size = size}, {});
        REQUIRE((data != nullptr) == (block.outcome == simulator::AllocationOutcome::allocated));
        if (data != nullptr) held.emplace_back(data, block.block);
        refused += data == nullptr ? 1 : 0;
      } else if (!held.empty()) {
        const auto at = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
        arena.release(at->first);
        simulated.free(at->second, {});
        held.erase(at);
      }
      REQUIRE(arena.reserved() == simulated.stats().reserved());
    }
    CHECK((refused > 0) == (seed > 2));
    CHECK(arena.reserved() > Bytes::mib(600));
  }
}

TEST_CASE("what is too large for the segments takes those that hold nothing, then fails") {
  Backend backend;
  Arena arena(backend, Bytes::mib(16));
  std::byte* a = arena.allocate(Bytes::mib(40), Queue::compute);
  REQUIRE(a != nullptr);
  arena.release(a);
  CHECK(arena.allocate(Bytes::mib(65), Queue::compute) == nullptr);
  std::byte* b = arena.allocate(Bytes::mib(60), Queue::compute);
  REQUIRE(b != nullptr);
  CHECK(arena.reserved() == Bytes::mib(60));
  CHECK(backend.drains > 0);
  arena.release(b);
}

TEST_CASE("a block that another queue used is taken last, and waited for until it is free") {
  Backend backend;
  Arena arena(backend, Bytes::mib(1));
  std::byte* used = arena.allocate(Bytes::kib(64), Queue::compute);
  std::byte* between = arena.allocate(Bytes::kib(512), Queue::compute);
  arena.touch(used + 100, Queue::reduce);
  arena.release(used);
  std::byte* other = arena.allocate(Bytes::kib(64), Queue::compute);
  CHECK(other != used);
  CHECK(backend.waits == 0);
  std::byte* rest = arena.allocate(Bytes::kib(384), Queue::compute);  // all that is left
  std::byte* again = arena.allocate(Bytes::kib(64), Queue::compute);
  CHECK(again == used);
  CHECK(backend.waits == 1);
  arena.touch(again, Queue::copy);
  arena.release(again);
  backend.passes = true;
  CHECK(arena.allocate(Bytes::kib(64), Queue::compute) == used);
  CHECK(backend.waits == 1);
  for (std::byte* data : {used, between, other, rest}) arena.release(data);
}

TEST_CASE("addresses can repeat whatever the queues have done meanwhile") {
  Backend backend;
  Arena arena(backend, Bytes::mib(1));
  arena.repeat_addresses();
  const auto step = [&] {
    std::vector<std::byte*> given;
    std::vector<std::byte*> held;
    for (int i = 0; i < 12; ++i) {
      held.push_back(arena.allocate(Bytes::kib(16 + 32 * (i % 3)), Queue::compute));
      given.push_back(held.back());
      if (i % 2 == 0) arena.touch(held.back(), Queue::reduce);
      if (i % 4 != 3) continue;
      arena.release(held.front());
      held.erase(held.begin());
    }
    for (std::byte* data : held) arena.release(data);
    arena.drained();
    return given;
  };
  const std::vector<std::byte*> first = step();
  backend.passes = true;
  CHECK(step() == first);
  backend.passes = false;
  CHECK(step() == first);
  // A block that another queue used is waited for until then.
  std::byte* used = arena.allocate(Bytes::mib(1), Queue::compute);
  const int waits = backend.waits;
  for (const bool drained : {false, true}) {
    arena.touch(used, Queue::copy);
    arena.release(used);
    if (drained) arena.drained();
    CHECK(arena.allocate(Bytes::mib(1), Queue::compute) == used);
    CHECK(backend.waits == waits + 1);
  }
  arena.release(used);
}

TEST_CASE("who asks for another queue is put behind the compute queue") {
  Backend backend;
  Arena arena(backend, Bytes::mib(1));
  std::byte* data = arena.allocate(Bytes::kib(64), Queue::reduce);
  CHECK(backend.waits == 1);
  arena.release(data);
  // All of the segment, the block that the reduce queue used among it.
  data = arena.allocate(Bytes::mib(1), Queue::compute);
  CHECK(backend.waits == 2);
  arena.release(data);
}

}  // namespace
}  // namespace zeroplan::runtime
