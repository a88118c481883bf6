// How the embedded runtime takes memory of a GPU, for the runtime and for predictions alike.
#pragma once

#include <cstdint>

namespace zeroplan {

// The kernels' scratch memory, one a rank, from its first micro-batch on: partial sums, cuBLASLt's
// workspace (NVIDIA asks for 32 MiB on Hopper: cuBLAS documentation, cublasSetWorkspace()), cuDNN's
// for attention's backward. That one is the largest, and a layer that does not fit goes in parts:
// 128 MiB hold 8,192 tokens of 16 heads of 128 that share keys, or one group of eight heads of
// 16,384 (runtime/cuda/cudnn). cuDNN takes powers of two and 128 or 256 bytes: hence one MiB more.
// In 33 MiB eight sequences of Qwen2.5-0.5B went one by one and took 2.4 times as long
// (profiles/measured/NVIDIA_H200).
inline constexpr std::int64_t kEmbeddedWorkspace = 129 << 20;  // bytes

// The least that the Arena (runtime/device/arena.hpp) asks of the driver at once.
inline constexpr std::int64_t kEmbeddedSegment = 64 << 20;  // bytes

}  // namespace zeroplan
