// Matrix products of a warp by tensor cores, and the fragments they take, from tiles in shared
// memory. Layouts: PTX ISA, mma.m16n8k16 and ldmatrix. Compute capability 8.0 and later.
#pragma once

#include "runtime/cuda/kernels/numbers.cuh"
#if !defined(__CUDACC__)
#include "runtime/cuda/emulation/tensor_core.hpp"
#endif

namespace zeroplan::runtime::cuda {

// 16 x 16 from the left, 16 x 8 from the right, 16 x 8 sums. A lane holds of the sums rows lane / 4
// (at 0 and 1) and lane / 4 + 8 (2 and 3), columns 2 (lane % 4) and the next.
struct Left {
  std::uint32_t at[4];
};
struct Sums {
  float at[4];
};

#if defined(__CUDACC__)

template <typename T>
__device__ __forceinline__ void multiply_add(Sums& d,
                                             const Left& a,
                                             std::uint32_t b0,
                                             std::uint32_t b1) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d.at[0]), "+f"(d.at[1]), "+f"(d.at[2]), "+f"(d.at[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d.at[0]), "+f"(d.at[1]), "+f"(d.at[2]), "+f"(d.at[3])
        : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
  }
}

// Four 8 x 8 matrices; lane 8 i + r gives row r of matrix i.
template <bool kTransposed>
__device__ __forceinline__ Left load_matrices(const void* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  Left r;
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.at[0]), "=r"(r.at[1]), "=r"(r.at[2]), "=r"(r.at[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.at[0]), "=r"(r.at[1]), "=r"(r.at[2]), "=r"(r.at[3])
                 : "r"(address)
                 : "memory");
  }
  return r;
}

#else

template <typename T>
void multiply_add(Sums& d, const Left& a, std::uint32_t b0, std::uint32_t b1) {
  const std::uint32_t b[2] = {b0, b1};
  emulation::ProductLane mine{a.at, b, d.at};
  emulation::warp_operation(&mine, emulation::resolve_product<T>, {__FILE__, __LINE__});
}

template <bool kTransposed>
Left load_matrices(const void* row) {
  emulation::MatrixLane mine{row};
  emulation::warp_operation(&mine, emulation::resolve_load<kTransposed>, {__FILE__, __LINE__});
  Left result{};
  for (int i = 0; i < 4; ++i) result.at[i] = mine.registers[i];
  return result;
}

#endif

template <typename T>
__device__ __forceinline__ std::uint32_t packed(float low, float high) {
  return static_cast<std::uint32_t>(stored<T>(low).bits) |
         static_cast<std::uint32_t>(stored<T>(high).bits) << 16U;
}

// Rows of a tile in shared memory are this many numbers apart: 16 bytes more than they are long, so
// that eight rows of ldmatrix fall into different banks where kDim is a multiple of 64 bytes.
template <int kDim>
inline constexpr int kTileStep = kDim + 8;

// Rows [row, row + 16), columns [column, column + 16) of a tile as a left factor.
template <typename T, int kDim>
__device__ __forceinline__ Left left_of(const T* tile, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return load_matrices<false>(tile + (row + lane % 16) * kTileStep<kDim> + column + lane / 16 * 8);
}

// sums[i] += left rows [row, row + 16) of `a` times rows of `b`, transposed: a b^T, both tiles of
// kDim columns; kRows rows of b.
template <typename T, int kDim, int kRows>
__device__ __forceinline__ void multiply_rows(Sums (&sums)[kRows / 8],
                                              const T* a,
                                              int row,
                                              const T* b) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T* from = b + (lane / 16 * 8 + lane % 8) * kTileStep<kDim> + lane / 8 % 2 * 8;
#pragma unroll
  for (int inner = 0; inner < kDim; inner += 16) {
    const Left left = left_of<T, kDim>(a, row, inner);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      const Left right = load_matrices<false>(from + i * 16 * kTileStep<kDim> + inner);
      multiply_add<T>(sums[2 * i], left, right.at[0], right.at[1]);
      multiply_add<T>(sums[2 * i + 1], left, right.at[2], right.at[3]);
    }
  }
}

// sums += p b: p 16 x kRows, given as sums of the shape above and rounded to T; b a tile of kRows
// rows and kDim columns.
template <typename T, int kDim, int kRows>
__device__ __forceinline__ void multiply_columns(Sums (&sums)[kDim / 8],
                                                 const Sums (&p)[kRows / 8],
                                                 const T* b) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T* from = b + (lane / 8 % 2 * 8 + lane % 8) * kTileStep<kDim> + lane / 16 * 8;
#pragma unroll
  for (int inner = 0; inner < kRows / 16; ++inner) {
    const Sums& low = p[2 * inner];
    const Sums& high = p[2 * inner + 1];
    const Left left{{packed<T>(low.at[0], low.at[1]),
                     packed<T>(low.at[2], low.at[3]),
                     packed<T>(high.at[0], high.at[1]),
                     packed<T>(high.at[2], high.at[3])}};
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      const Left right = load_matrices<true>(from + inner * 16 * kTileStep<kDim> + i * 16);
      multiply_add<T>(sums[2 * i], left, right.at[0], right.at[1]);
      multiply_add<T>(sums[2 * i + 1], left, right.at[2], right.at[3]);
    }
  }
}

}  // namespace zeroplan::runtime::cuda
