// Scratch memory of a stream (cuda_kernels.hpp), for kernels and cuBLASLt alike: calls of one
// stream follow each other, so they may share it. Internal to runtime/cuda/kernels.
#pragma once

#include "runtime/cuda/kernels/cuda_kernels.hpp"

namespace zeroplan::runtime::cuda {

// 32 MiB, what NVIDIA asks for on Hopper (4 MiB before it), and one more: attention's plans of
// cuDNN take powers of two and 128 or 256 bytes, 32 MiB and 256 for many a model
// (cudnn/slices.hpp). Source: cuBLAS documentation, section cublasSetWorkspace(), "recommended size
// of user-provided workspace".
inline constexpr std::int64_t kWorkspace = 33 << 20;
std::byte* workspace(Stream stream);

}  // namespace zeroplan::runtime::cuda
