// Stored numbers in packs of up to 16 bytes, computed with as floats; sums over warps and blocks.
#pragma once

#include "runtime/cuda/kernels/device.cuh"
#include "runtime/kernels/cpu_float.hpp"

namespace zeroplan::runtime::cuda {

__device__ __forceinline__ float value_of(float x) { return x; }
template <typename T>
__device__ __forceinline__ T stored(float x);
template <>
__device__ __forceinline__ float stored<float>(float x) {
  return x;
}

#if defined(__CUDACC__)
__device__ __forceinline__ float value_of(Bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16U);
}
__device__ __forceinline__ float value_of(Fp16 x) { return __half2float(__ushort_as_half(x.bits)); }
template <>
__device__ __forceinline__ Bf16 stored<Bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <>
__device__ __forceinline__ Fp16 stored<Fp16>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
#else
inline float value_of(Bf16 x) { return to_float(x); }
inline float value_of(Fp16 x) { return to_float(x); }
template <>
inline Bf16 stored<Bf16>(float x) {
  return from_float<Bf16>(x);
}
template <>
inline Fp16 stored<Fp16>(float x) {
  return from_float<Fp16>(x);
}
#endif

// kCount numbers that are loaded and stored by one instruction where they fill 4, 8 or 16 bytes.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};
template <int kCount>
struct Floats {
  float at[kCount];
};

template <int kCount, typename T>
__device__ __forceinline__ Floats<kCount> read(const T* from) {
  const Pack<T, kCount> pack = *reinterpret_cast<const Pack<T, kCount>*>(from);
  Floats<kCount> values;
#pragma unroll
  for (int i = 0; i < kCount; ++i) values.at[i] = value_of(pack.at[i]);
  return values;
}
template <int kCount, typename T>
__device__ __forceinline__ void write(T* to, const Floats<kCount>& values) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.at[i] = stored<T>(values.at[i]);
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

template <typename T>
inline constexpr int kPack = static_cast<int>(16 / sizeof(T));

inline bool aligned(const void* data, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}
// Whether rows of `columns` numbers can be read by packs everywhere.
template <typename T, typename... Pointers>
bool packable(std::int64_t columns, const Pointers*... data) {
  return columns % kPack<T> == 0 && (aligned(data, 16) && ...);
}

template <int kValue>
struct Width {
  static constexpr int kCount = kValue;
};

// Calls body(Width, i) for each pack that begins at i, and for each element past the packs. The
// block's threads share a row of n elements whose first `packs` * kPack are read by packs; the same
// thread has the same elements in every call.
template <typename T, typename Body>
__device__ __forceinline__ void for_columns(std::int64_t n, std::int64_t packs, Body&& body) {
  for (std::int64_t i = threadIdx.x; i < packs; i += blockDim.x) {
    body(Width<kPack<T>>{}, i * kPack<T>);
  }
  for (std::int64_t i = packs * kPack<T> + threadIdx.x; i < n; i += blockDim.x) {
    body(Width<1>{}, i);
  }
}

// Threads for a row of n elements: whole warps, a pack for each.
template <typename T>
unsigned threads_for_row(std::int64_t n) {
  unsigned threads = 32;
  while (threads < 512 && threads * kPack<T> < n) threads *= 2;
  return threads;
}

template <typename V>
__device__ __forceinline__ V warp_sum(V value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(kAllLanes, value, lanes);
  return value;
}

// The sum over the block, in every thread; `scratch` is room for 32 in shared memory.
template <typename V>
__device__ __forceinline__ V block_sum(V value, V* scratch) {
  value = warp_sum(value);
  __syncthreads();  // the sum before has been read
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  V sum{};
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += scratch[warp];
  return sum;
}

}  // namespace zeroplan::runtime::cuda
