// The knobs of PyTorch's caching allocator, and its rules for sizes.
//
// Units: Bytes. Sources: c10/cuda/CUDACachingAllocator.cpp, c10/cuda/CUDAAllocatorConfig.cpp (up to
// torch 2.8) and c10/core/AllocatorConfig.cpp (since 2.9); symbols stand with each statement.
// Checked by tests/unit/simulator/allocator_options_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "model/software.hpp"

namespace zeroplan::simulator {

inline constexpr Bytes kMinBlockSize = Bytes::of(512);   // kMinBlockSize: the quantum of rounding
inline constexpr Bytes kSmallSize = Bytes::mib(1);       // kSmallSize: rounded sizes up to it are
                                                         // in the small pool
inline constexpr Bytes kSmallBuffer = Bytes::mib(2);     // kSmallBuffer: segments of the small pool
inline constexpr Bytes kMinLargeAlloc = Bytes::mib(10);  // kMinLargeAlloc: below it a segment is
                                                         // shared
inline constexpr Bytes kLargeBuffer = Bytes::mib(20);    // kLargeBuffer: that segment
inline constexpr Bytes kRoundLarge = Bytes::mib(2);      // kRoundLarge: larger ones, in steps of it

// Intervals of roundup_power2_divisions: from 1 MiB to 64 GiB, one a power of two; smaller sizes
// belong to the first and larger ones to the last. Source: kRoundUpPowerOfTwoIntervals.
inline constexpr std::size_t kRoundUpIntervals = 16;

struct AllocatorOptions {
  // Of the device. `device_total` is what cudaMemGetInfo calls total; `available` what this
  // process's allocator can have of it: total - context - NCCL - everything else.
  Bytes device_total = Bytes::infinite();
  Bytes available = Bytes::infinite();
  // torch.cuda.set_per_process_memory_fraction: fraction * device_total. Absent: never called.
  std::optional<Bytes> allowed;

  // PYTORCH_CUDA_ALLOC_CONF.
  Bytes max_split_size = Bytes::infinite();                                // max_split_size_mb
  std::array<std::int64_t, kRoundUpIntervals> roundup_power2_divisions{};  // 0: off
  Bytes roundup_bypass_threshold = Bytes::infinite();                      // torch 1.13 alone
  double garbage_collection_threshold = 0.0;    // 0: off; acts only where `allowed` is set
  bool expandable_segments = false;             // since torch 2.1
  Bytes max_non_split_rounding = kLargeBuffer;  // an option since torch 2.6
  Bytes large_segment_size = kLargeBuffer;      // an option of the newest releases

  // Of equal free blocks that of the segment that was made first is taken, since torch 2.12;
  // before, that with the lowest address. Source: BlockComparatorSizeCounterAddress (pull request
  // 183591).
  bool oldest_segment_first = false;

  // Above zero: not PyTorch's allocator but the embedded runtime's Arena
  // (runtime/device/arena.hpp), which has one pool, asks the driver for so much at least, and
  // splits whatever remains.
  Bytes arena_segment = Bytes::zero();

  bool is_arena() const { return arena_segment > Bytes::zero(); }
  bool collects_garbage() const { return allowed && garbage_collection_threshold > 0.0; }
};

// `base` with what a PYTORCH_CUDA_ALLOC_CONF text says, as that release of torch reads it:
// "max_split_size_mb:128,expandable_segments:True". `source` names the text in errors. Throws
// InputError for what torch refuses, for an option the release does not have, and for
// backend:cudaMallocAsync, which is another allocator.
AllocatorOptions parse_alloc_conf(std::string_view text,
                                  std::string_view source,
                                  const Version& torch,
                                  const AllocatorOptions& base = {});

// What torch.cuda.set_per_process_memory_fraction(fraction) allows: the whole bytes of the share.
// Source: DeviceCachingAllocator::setMemoryFraction.
Bytes fraction_of(Bytes total, double fraction);

// The size of the block a request asks for; the request is above zero. Multiples of 512, or with
// roundup_power2_divisions the next of `divisions` steps between two powers of two.
// Source: DeviceCachingAllocator::round_size, roundup_power2_next_division.
Bytes round_size(Bytes request, const AllocatorOptions& options);

// What is asked of cudaMalloc for a block of a rounded size: 2 MiB in the small pool, 20 MiB
// (large_segment_size) below 10 MiB, else the size in steps of 2 MiB.
// Source: DeviceCachingAllocator::get_allocation_size.
Bytes segment_size(Bytes rounded, const AllocatorOptions& options);

}  // namespace zeroplan::simulator
