// What one call of the allocators costs in the simulator. Run by hand:
// build/release/bin/planner_bench
// --benchmark_filter=allocator. One iteration is one allocation and one free, unless it says more.
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "simulator/allocator.hpp"

namespace {

using namespace zeroplan;

simulator::AllocatorOptions options_with(bool expandable) {
  simulator::AllocatorOptions options;
  options.device_total = Bytes::gib(80);
  options.available = Bytes::gib(78);
  options.expandable_segments = expandable;
  return options;
}

// A tensor that comes and goes while nothing else does.
void allocator_one_tensor(benchmark::State& state) {
  simulator::CachingAllocator allocator(options_with(false));
  for (auto _ : state) {
    const simulator::Allocation got = allocator.allocate({.size = Bytes::mib(3)}, {});
    allocator.free(got.block, {});
  }
}
BENCHMARK(allocator_one_tensor);

// Like a training step: layers save ten tensors each and drop six transients on the way up, and
// free what they saved, with transients, on the way down; over weights that stay.
struct Step {
  std::vector<std::int64_t> sizes;
  std::vector<simulator::BlockId> saved;
  std::int64_t calls = 0;

  void run(simulator::CachingAllocator& allocator, simulator::StreamClocks clocks, int layers) {
    calls = 0;
    saved.clear();
    const auto transient = [&](std::size_t i) {
      const std::int64_t size = sizes[i % sizes.size()];
      const simulator::BlockId block = allocator.allocate({.size = Bytes::of(size)}, clocks).block;
      calls += 2;
      return block;
    };
    for (int layer = 0; layer < layers; ++layer) {
      simulator::BlockId last = simulator::kNoBlock;
      for (std::size_t i = 0; i < 16; ++i) {
        const simulator::BlockId block = transient(i);
        if (i % 8 < 5) {
          saved.push_back(block);
        } else {
          allocator.free(last, clocks);
          last = block;
        }
      }
      allocator.free(last, clocks);
    }
    for (int layer = 0; layer < layers; ++layer) {
      simulator::BlockId last = simulator::kNoBlock;
      for (std::size_t i = 0; i < 20; ++i) {
        const simulator::BlockId block = transient(i + 5);
        allocator.free(last, clocks);
        last = block;
        if (i % 2 == 0) {
          allocator.free(saved.back(), clocks);
          saved.pop_back();
        }
      }
      allocator.free(last, clocks);
    }
  }
};

void allocator_training_step(benchmark::State& state) {
  simulator::CachingAllocator allocator(options_with(state.range(0) != 0));
  std::mt19937 random(1);
  Step step;
  for (int i = 0; i < 23; ++i) {
    step.sizes.push_back(1 + static_cast<std::int64_t>(random() % (40 << (i % 3 == 0 ? 10 : 20))));
  }
  for (int i = 0; i < 400; ++i) {
    allocator.allocate({.size = Bytes::kib(8 + i % 5 * 3000)}, {});
  }
  step.run(allocator, {}, 32);
  for (auto _ : state) step.run(allocator, {}, 32);
  state.counters["ns_per_call"] = benchmark::Counter(
      static_cast<double>(step.calls),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(allocator_training_step)->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

// Random frees and allocations with `range` tensors alive: a fragmented arena.
void allocator_random(benchmark::State& state) {
  simulator::CachingAllocator allocator(options_with(false));
  std::mt19937 random(2);
  std::vector<std::int64_t> sizes(4096);
  for (std::int64_t& size : sizes) {
    size = 1 + static_cast<std::int64_t>(random() % (1u << (9 + random() % 16)));
  }
  std::vector<simulator::BlockId> alive(static_cast<std::size_t>(state.range(0)));
  for (simulator::BlockId& block : alive) {
    block = allocator.allocate({.size = Bytes::of(sizes[random() % sizes.size()])}, {}).block;
  }
  std::vector<std::uint32_t> victims(1 << 14);
  for (auto& v : victims) v = static_cast<std::uint32_t>(random() % alive.size());
  std::size_t i = 0;
  for (auto _ : state) {
    ++i;
    simulator::BlockId& block = alive[victims[i % victims.size()]];
    allocator.free(block, {});
    block = allocator.allocate({.size = Bytes::of(sizes[i % sizes.size()])}, {}).block;
  }
}
BENCHMARK(allocator_random)->Arg(100)->Arg(1000)->Arg(10000);

// A gathered weight that the communication stream used: its free waits for an event.
void allocator_deferred_free(benchmark::State& state) {
  simulator::CachingAllocator allocator(options_with(false));
  std::vector<simulator::StreamClock> clocks(2);
  for (auto _ : state) {
    const simulator::Allocation got = allocator.allocate({.size = Bytes::mib(64)}, clocks);
    allocator.record_stream(got.block, 1);
    ++clocks[1].queued;
    allocator.free(got.block, clocks);
    clocks[1].completed = clocks[1].queued - 1;
  }
}
BENCHMARK(allocator_deferred_free);

void allocator_fingerprint(benchmark::State& state) {
  simulator::CachingAllocator allocator(options_with(false));
  std::mt19937 random(3);
  std::vector<simulator::BlockId> alive;
  for (int i = 0; i < 2000; ++i) {
    alive.push_back(
        allocator
            .allocate({.size = Bytes::of(1 + static_cast<std::int64_t>(random() % 9999999))}, {})
            .block);
  }
  for (std::size_t i = 0; i < alive.size(); i += 2) allocator.free(alive[i], {});
  for (auto _ : state) benchmark::DoNotOptimize(allocator.fingerprint({}));
}
BENCHMARK(allocator_fingerprint)->Unit(benchmark::kMicrosecond);

}  // namespace
