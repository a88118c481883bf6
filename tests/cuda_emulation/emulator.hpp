// CUDA's execution model on one CPU thread, as far as runtime/cuda/kernels uses it: so that the
// kernels' own source is compiled by any C++ compiler and run where there is no GPU. It shows what
// is computed and whether threads are ordered as they must be; it says nothing about speed.
//
//   A block's threads are fibers, run in an order that a test chooses (Schedule), each until it
//   waits. __syncthreads and the operations of a warp wait for all of the block's threads, all 32
//   lanes; where some are elsewhere or have returned, the launch throws Fault.
//   Shared memory is dynamic alone, as large as the launch says, filled with NaN for each block
//   and followed by guard bytes. Blocks run one after the other.
//   A warp's matrix operations take and give fragments as the PTX ISA lays them out over lanes.
//   An asynchronous copy arrives at its own thread's wait for it and not before; from when it is
//   ordered until then its destination is NaN.
//
// The names are CUDA's. Included through runtime/cuda/kernels/device.cuh, not under nvcc.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

struct CUstream_st;

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace zeroplan::runtime::cuda::emulation {

// What a GPU would leave undefined.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// In which order blocks, and the threads of a block that can go on, take their turns. forward and
// reversed: a warp runs as far as it can before the next one, from the first or from the last, so
// that a warp is ahead of those it should have waited for. shuffled: every thread goes one step in
// an order drawn anew each time, so that lanes of a warp are apart.
struct Schedule {
  enum class Order { forward, reversed, shuffled } order = Order::forward;
  std::uint64_t seed = 1;  // of shuffled
};
void set_schedule(Schedule schedule);

// The most shared memory that a block may ask for on the smallest GPU in the architectures of
// cmake/Cuda.cmake: 163 KiB on compute capability 8.0. Source: CUDA C++ Programming Guide, table
// "Technical Specifications per Compute Capability".
inline constexpr std::size_t kSharedLimit = std::size_t{163} * 1024;

struct Grid {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
};
// Runs `thread` for each thread of each block.
void run_grid(const Grid& grid, const std::function<void()>& thread);

std::byte* shared_memory();

// Where a thread stands: for faults, and so that lanes meet at one place.
struct Place {
  const char* file = nullptr;
  int line = 0;
};
void block_barrier(Place place);
// Waits for the warp; the last lane runs resolve on what all lanes brought.
using Resolve = void (*)(void* const (&lanes)[32]);
void warp_operation(void* brought, Resolve resolve, Place place);

// cp.async of the calling thread: `bytes` from global to shared memory, `given` of them from
// `from` and zeros after; given 0 reads nothing. Faults: addresses that are not multiples of
// bytes, a destination outside of the block's shared memory, threads that end with copies under
// way.
void copy_async(void* to, const void* from, std::size_t bytes, std::size_t given, Place place);
// What was ordered since the last commit is a group; waits until at most `pending` groups of the
// thread are under way. Others see what has arrived behind a barrier alone.
void commit_copies();
void wait_copies(int pending);

template <typename T>
struct Exchange {
  T value;
  int argument = 0;
  T result{};
};

template <typename T, typename Source>
T exchange(unsigned mask, T value, int argument, Source, Place place) {
  if (mask != 0xffffffffU) throw Fault("a warp's operation without all its lanes");
  Exchange<T> mine{value, argument};
  warp_operation(
      &mine,
      [](void* const(&lanes)[32]) {
        for (int lane = 0; lane < 32; ++lane) {
          auto* to = static_cast<Exchange<T>*>(lanes[lane]);
          const int from = Source{}(lane, to->argument);
          to->result =
              static_cast<Exchange<T>*>(lanes[from >= 0 && from < 32 ? from : lane])->value;
        }
      },
      place);
  return mine.result;
}

}  // namespace zeroplan::runtime::cuda::emulation

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  zeroplan::runtime::cuda::emulation::block_barrier({file, line});
}

inline void __syncwarp(unsigned mask = 0xffffffffU,
                       const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  namespace emulation = zeroplan::runtime::cuda::emulation;
  emulation::exchange(mask, 0, 0, [](int lane, int) { return lane; }, {file, line});
}

template <typename T>
T __shfl_xor_sync(unsigned mask,
                  T value,
                  int lanes,
                  const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  namespace emulation = zeroplan::runtime::cuda::emulation;
  return emulation::exchange(
      mask, value, lanes, [](int lane, int other) { return lane ^ other; }, {file, line});
}

template <typename T>
T __shfl_sync(unsigned mask,
              T value,
              int from,
              const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  namespace emulation = zeroplan::runtime::cuda::emulation;
  return emulation::exchange(
      mask, value, from, [](int, int other) { return other % 32; }, {file, line});
}

inline unsigned __ballot_sync(unsigned mask,
                              int predicate,
                              const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  namespace emulation = zeroplan::runtime::cuda::emulation;
  if (mask != 0xffffffffU) throw emulation::Fault("a warp's operation without all its lanes");
  emulation::Exchange<unsigned> mine{predicate != 0 ? 1U : 0U};
  emulation::warp_operation(
      &mine,
      [](void* const(&lanes)[32]) {
        unsigned bits = 0;
        for (int lane = 0; lane < 32; ++lane) {
          bits |= static_cast<emulation::Exchange<unsigned>*>(lanes[lane])->value << lane;
        }
        for (void* lane : lanes) static_cast<emulation::Exchange<unsigned>*>(lane)->result = bits;
      },
      {file, line});
  return mine.result;
}

inline int __ffs(int value) { return __builtin_ffs(value); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float rsqrtf(float value) { return 1.0F / std::sqrt(value); }
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
