// Scratch memory of a stream (cuda_kernels.hpp), for kernels and cuBLASLt alike: calls of one
// stream follow each other, so they may share it. Internal to runtime/cuda/kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/implementations/embedded_memory.hpp"
#include "runtime/cuda/kernels/stream.hpp"

namespace zeroplan::runtime::cuda {

inline constexpr std::int64_t kWorkspace = kEmbeddedWorkspace;
std::byte* workspace(Stream stream);

}  // namespace zeroplan::runtime::cuda
