// What kernels see of the device: CUDA under nvcc, an emulation of its execution model under any
// other compiler (tests/cuda_emulation). Kernels use no shared memory but what their launch gives
// (shared_memory), blocks of whole warps, and operations of a warp with all of its lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/cuda/kernels/workspace.hpp"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include <cuda_emulation/capture.hpp>
#include <cuda_emulation/emulator.hpp>
#endif

namespace zeroplan::runtime::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffU;

#if defined(__CUDACC__)

inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(status) + ": " +
                           cudaGetErrorString(status));
}

// The block's shared memory, aligned to 128 bytes; not initialised.
__device__ __forceinline__ std::byte* shared_memory() {
  extern __shared__ __align__(128) unsigned char zp_shared[];
  return reinterpret_cast<std::byte*>(zp_shared);
}

// Above 48 KiB a kernel has to be allowed its shared memory; below that the call costs nothing.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...),
            dim3 grid,
            dim3 block,
            std::size_t shared_bytes,
            Stream stream,
            Arguments&&... arguments) {
  if (shared_bytes > 48 * 1024) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "cudaFuncSetAttribute");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
             "cudaLaunchKernelEx");
}

inline void copy_memory(Stream stream, void* to, const void* from, std::size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
}
inline void clear_memory(Stream stream, void* data, std::size_t bytes) {
  check_cuda(cudaMemsetAsync(data, 0, bytes, stream), "cudaMemsetAsync");
}

inline int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}
inline std::byte* allocate_memory(std::size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMalloc(&data, bytes), "cudaMalloc of a stream's workspace");
  return static_cast<std::byte*>(data);
}
// In destructors, too: errors have been reported by the stream's owner.
inline void free_memory(Stream stream, std::byte* data) {
  static_cast<void>(cudaStreamSynchronize(stream));
  static_cast<void>(cudaFree(data));
}

#else

__device__ inline std::byte* shared_memory() { return emulation::shared_memory(); }

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...),
            dim3 grid,
            dim3 block,
            std::size_t shared_bytes,
            Stream stream,
            Arguments&&... arguments) {
  // Copied at the call, as CUDA does: a captured launch runs with them again and again.
  const std::tuple<Parameters...> values{static_cast<Parameters>(arguments)...};
  emulation::order(stream, [kernel, grid, block, shared_bytes, values] {
    emulation::run_grid({grid, block, shared_bytes}, [&] { std::apply(kernel, values); });
  });
}

inline void copy_memory(Stream stream, void* to, const void* from, std::size_t bytes) {
  emulation::order(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
}
inline void clear_memory(Stream stream, void* data, std::size_t bytes) {
  emulation::order(stream, [data, bytes] { std::memset(data, 0, bytes); });
}

inline int current_device() { return 0; }
inline std::byte* allocate_memory(std::size_t bytes) {
  auto* data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256}));
  std::memset(data, 0xff, bytes);
  return data;
}
inline void free_memory(Stream, std::byte* data) {
  ::operator delete (data, std::align_val_t{256});
}

#endif

__host__ __device__ constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

inline dim3 grid_of(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

}  // namespace zeroplan::runtime::cuda
