// Scratch memory of a stream (cuda_kernels.hpp), for kernels and cuBLASLt alike: calls of one
// stream follow each other, so they may share it. Internal to runtime/cuda/kernels.
#pragma once

#include "runtime/cuda/kernels/cuda_kernels.hpp"

namespace zeroplan::runtime::cuda {

// 32 MiB, what NVIDIA asks for on Hopper (4 MiB before it). Source: cuBLAS documentation, section
// cublasSetWorkspace(), "recommended size of user-provided workspace".
inline constexpr std::int64_t kWorkspace = 32 << 20;
std::byte* workspace(Stream stream);

}  // namespace zeroplan::runtime::cuda
