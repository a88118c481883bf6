// Copies between host and GPU by size, direction and kind of host memory, and what it takes to get
// memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include <unistd.h>

#include "runtime/cuda/cuda_check.hpp"
#include "runtime/cuda/profile/bench.hpp"
#include "runtime/kernels/thread_pool.hpp"

namespace zeroplan::runtime::cuda {
namespace {

constexpr std::int64_t kSmallest = 1 << 12;
constexpr std::int64_t kSmall = 1 << 20;  // up to here several in a row
constexpr std::int64_t kInARow = 16;

enum class Direction { to_gpu, to_host, both };
constexpr std::pair<Direction, const char*> kDirections[] = {
    {Direction::to_gpu, "to_gpu"}, {Direction::to_host, "to_host"}, {Direction::both, "both"}};

std::int64_t host_memory() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

// The two ways, each with memory of its own on both sides.
class Copies {
 public:
  Copies(Bench& bench, std::int64_t most)
      : bench_(bench), up_device_(most), down_device_(most), up_host_(most), down_host_(most) {}

  // By events; small ones in a row, as an engine that copies tensor by tensor orders them.
  void pinned(Direction direction, const char* name, std::int64_t bytes) {
    const std::int64_t calls = bytes <= kSmall ? kInARow : 1;
    Mark begin;
    Mark end;
    Mark other;
    const auto timed = [&] {
      begin.record(bench_.stream());
      if (direction == Direction::both) begin.hold(second_);
      for (std::int64_t i = 0; i < calls; ++i) {
        if (direction != Direction::to_host) {
          up(up_device_.data(), up_host_.data(), bytes, bench_.stream());
        }
        if (direction != Direction::to_gpu) {
          down(down_host_.data(),
               down_device_.data(),
               bytes,
               direction == Direction::both ? static_cast<cudaStream_t>(second_) : bench_.stream());
        }
      }
      if (direction == Direction::both) {
        other.record(second_);
        other.hold(bench_.stream());
      }
      end.record(bench_.stream());
      end.wait();
      return end.seconds_since(begin) / static_cast<double>(calls);
    };
    add("gpu_pinned_copy", direction, name, bytes, repeat_timed(timed, bench_.scale().isolated));
  }

  // By the host's clock: the call itself copies through the driver's pinned buffers. Two at once
  // are two threads'.
  void pageable(Direction direction, const char* name, std::int64_t bytes) {
    std::vector<std::byte> from(static_cast<std::size_t>(bytes), std::byte{1});
    std::vector<std::byte> to(static_cast<std::size_t>(bytes));
    const auto one = [&](bool upwards) {
      if (upwards) {
        up(up_device_.data(), from.data(), bytes, bench_.stream());
        ZP_CUDA(cudaStreamSynchronize(bench_.stream()));
      } else {
        down(to.data(), down_device_.data(), bytes, second_);
        ZP_CUDA(cudaStreamSynchronize(second_));
      }
    };
    ThreadPool pool(2);
    std::array<std::exception_ptr, 2> problems;  // the pool's tasks must not throw
    const auto caught = [&](std::int64_t i) {
      try {
        one(i == 0);
      } catch (...) {
        problems[static_cast<std::size_t>(i)] = std::current_exception();
      }
    };
    const auto work = [&] {
      if (direction == Direction::both) {
        pool.run(2, caught);
        for (const std::exception_ptr& problem : problems) {
          if (problem) std::rethrow_exception(problem);
        }
      } else {
        one(direction == Direction::to_gpu);
      }
    };
    add("gpu_pageable_copy", direction, name, bytes, repeat(work, bench_.scale().isolated));
  }

 private:
  static void up(std::byte* to, const std::byte* from, std::int64_t bytes, cudaStream_t stream) {
    ZP_CUDA(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream));
  }
  static void down(std::byte* to, const std::byte* from, std::int64_t bytes, cudaStream_t stream) {
    ZP_CUDA(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream));
  }
  void add(const char* what,
           Direction direction,
           const char* name,
           std::int64_t bytes,
           std::vector<double> seconds) {
    const double moved = static_cast<double>(bytes) * (direction == Direction::both ? 2.0 : 1.0);
    bench_.findings.rows.push_back(bench_.row(what,
                                              {{"direction", Json(name)}, {"bytes", Json(bytes)}},
                                              "bytes/s",
                                              rates(moved, std::move(seconds)),
                                              bench_.scale().isolated.discard));
  }

  Bench& bench_;
  OwnStream second_;
  DeviceMemory up_device_, down_device_;
  PinnedMemory up_host_, down_host_;
};

// Seconds of taking and of giving back, by the host's clock.
template <typename Take, typename Give>
void allocation(Bench& bench,
                const char* take_name,
                const char* give_name,
                std::int64_t bytes,
                Take take,
                Give give) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> given;
  const auto timed = [&] {
    const Clock::time_point begin = Clock::now();
    void* const data = take();
    const Clock::time_point taken = Clock::now();
    give(data);
    given.push_back(std::max(1e-9, std::chrono::duration<double>(Clock::now() - taken).count()));
    return std::chrono::duration<double>(taken - begin).count();
  };
  std::vector<double> took = repeat_timed(timed, bench.scale().isolated);
  const std::int64_t discarded = bench.scale().isolated.discard;
  given.erase(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(discarded));
  const auto add = [&](const char* what, std::vector<double> seconds) {
    bench.findings.rows.push_back(bench.row(what,
                                            {{"bytes", Json(bytes)}, {"clock", Json("host")}},
                                            "s",
                                            std::move(seconds),
                                            discarded));
  };
  add(take_name, std::move(took));
  add(give_name, std::move(given));
}

}  // namespace

void measure_copies(Bench& bench) {
  const std::int64_t most =
      std::min({bench.scale().largest_copy, bench.room() / 2, host_memory() / 16});
  Copies copies(bench, most);
  for (std::int64_t bytes = kSmallest; bytes <= most; bytes *= 16) {
    for (const auto& [direction, name] : kDirections) {
      copies.pinned(direction, name, bytes);
      copies.pageable(direction, name, bytes);
    }
  }
}

void measure_allocations(Bench& bench) {
  const std::int64_t most = bench.scale().largest_allocation;
  constexpr std::int64_t kFactor = 8;
  for (std::int64_t bytes = kSmallest; bytes <= std::min(most, bench.room()); bytes *= kFactor) {
    allocation(
        bench,
        "gpu_malloc",
        "gpu_free",
        bytes,
        [bytes] {
          void* data = nullptr;
          ZP_CUDA(cudaMalloc(&data, static_cast<std::size_t>(bytes)));
          return data;
        },
        [](void* data) { ZP_CUDA(cudaFree(data)); });
  }
  for (std::int64_t bytes = kSmallest; bytes <= std::min(most, host_memory() / 8);
       bytes *= kFactor) {
    allocation(
        bench,
        "gpu_host_alloc",
        "gpu_host_free",
        bytes,
        [bytes] {
          void* data = nullptr;
          ZP_CUDA(cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocDefault));
          return data;
        },
        [](void* data) { ZP_CUDA(cudaFreeHost(data)); });
  }
}

}  // namespace zeroplan::runtime::cuda
