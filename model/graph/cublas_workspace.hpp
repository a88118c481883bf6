// The memory that PyTorch gives cuBLAS and cublasLt to work in.
#pragma once

#include "base/units.hpp"

namespace zeroplan {

// Of one call of cublasLt. Source: aten/src/ATen/cuda/CUDABlas.cpp, _getWorkspaceSize: 1024 KiB.
inline constexpr std::int64_t kLtWorkspace = 1 << 20;  // bytes

// Of cuBLAS, by 10 major + minor. Source: aten/src/ATen/cuda/CublasHandlePool.cpp,
// parseChosenWorkspaceSize: :4096:2:16:8, on Hopper 32 MiB; rehearsed for a B200 with torch 2.14
// and 2.15: 32 MiB, too.
constexpr Bytes cublas_workspace(int compute_capability) {
  constexpr int kHopper = 90;
  return compute_capability >= kHopper ? Bytes::kib(4096) * 8
                                       : Bytes::kib(4096) * 2 + Bytes::kib(16) * 8;
}

}  // namespace zeroplan
