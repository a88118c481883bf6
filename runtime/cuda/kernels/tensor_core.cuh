// Matrix products of a warp by tensor cores, and the fragments they take, from tiles in shared
// memory. Layouts: PTX ISA, mma.m16n8k16 and ldmatrix. Compute capability 8.0 and later.
#pragma once

#include "runtime/cuda/kernels/numbers.cuh"
#if !defined(__CUDACC__)
#include <cuda_emulation/tensor_core.hpp>
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

// Two numbers rounded to T in a register, the first in its low half.
template <typename T>
__device__ __forceinline__ std::uint32_t packed(float low, float high) {
#if defined(__CUDACC__)
  std::uint32_t both;
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
#else
  return static_cast<std::uint32_t>(stored<T>(low).bits) |
         static_cast<std::uint32_t>(stored<T>(high).bits) << 16U;
#endif
}

// 2^x; relative error up to 2^-22, results below 2^-126 are 0 (PTX ISA, ex2.approx.ftz.f32).
__device__ __forceinline__ float power_of_two(float x) {
#if defined(__CUDACC__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return exp2f(x);
#endif
}

// Rows of a tile in shared memory are this many numbers apart: 16 bytes more than they are long.
template <int kDim>
inline constexpr int kTileStep = kDim + 8;

// ldmatrix reads eight rows of 16 bytes at once, one from each of eight groups of four banks, or
// one after the other.
__host__ __device__ constexpr bool free_of_bank_conflicts(int step) {
  unsigned groups = 0;
  for (int row = 0; row < 8; ++row) groups |= 1U << (row * step * 2 / 16 % 8);
  return groups == 0xffU;
}

// Left factors: the warp's 16 kGroups rows of a tile in shared memory, from `row` on. kKept: read
// once, into registers.
template <typename T, int kDim, int kGroups, bool kKept>
class LeftRows {
 public:
  __device__ __forceinline__ LeftRows(const T* tile, int row) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    from_ = tile + (row + lane % 16) * kTileStep<kDim> + lane / 16 * 8;
    if constexpr (kKept) {
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
#pragma unroll
        for (int i = 0; i < kDim / 16; ++i) kept_[group][i] = load(group, i);
      }
    }
  }
  // Columns [16 i, 16 i + 16) of a group's rows.
  __device__ __forceinline__ Left at(int group, int i) const {
    if constexpr (kKept) return kept_[group][i];
    return load(group, i);
  }

 private:
  __device__ __forceinline__ Left load(int group, int i) const {
    return load_matrices<false>(from_ + group * 16 * kTileStep<kDim> + i * 16);
  }

  const T* from_;
  Left kept_[kKept ? kGroups : 1][kKept ? kDim / 16 : 1];
};

// sums += a b^T: a's rows by rows [0, kRows) of the tile b, over kDim columns. sums[g][i]: a's
// group g, b's rows 8 i to 8 i + 7.
template <typename T, int kDim, int kRows, int kGroups, bool kKept>
__device__ __forceinline__ void multiply_rows(Sums (&sums)[kGroups][kRows / 8],
                                              const LeftRows<T, kDim, kGroups, kKept>& a,
                                              const T* b) {
  static_assert(free_of_bank_conflicts(kTileStep<kDim>));
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T* from = b + (lane / 16 * 8 + lane % 8) * kTileStep<kDim> + lane / 8 % 2 * 8;
#pragma unroll(kKept ? kDim / 16 : 2)
  for (int inner = 0; inner < kDim / 16; ++inner) {
    Left left[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) left[group] = a.at(group, inner);
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      const Left right = load_matrices<false>(from + i * 16 * kTileStep<kDim> + inner * 16);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        multiply_add<T>(sums[group][2 * i], left[group], right.at[0], right.at[1]);
        multiply_add<T>(sums[group][2 * i + 1], left[group], right.at[2], right.at[3]);
      }
    }
  }
}

// sums += p b: p 16 kGroups x kRows, given as sums of the shape above and rounded to T; b a tile of
// kRows rows and kDim columns.
template <typename T, int kDim, int kRows, int kGroups>
__device__ __forceinline__ void multiply_columns(Sums (&sums)[kGroups][kDim / 8],
                                                 const Sums (&p)[kGroups][kRows / 8],
                                                 const T* b) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const T* from = b + (lane / 8 % 2 * 8 + lane % 8) * kTileStep<kDim> + lane / 16 * 8;
#pragma unroll
  for (int inner = 0; inner < kRows / 16; ++inner) {
    Left left[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const Sums& low = p[group][2 * inner];
      const Sums& high = p[group][2 * inner + 1];
      left[group] = {{packed<T>(low.at[0], low.at[1]),
                      packed<T>(low.at[2], low.at[3]),
                      packed<T>(high.at[0], high.at[1]),
                      packed<T>(high.at[2], high.at[3])}};
    }
#pragma unroll
    for (int i = 0; i < kDim / 16; ++i) {
      const Left right = load_matrices<true>(from + inner * 16 * kTileStep<kDim> + i * 16);
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        multiply_add<T>(sums[group][2 * i], left[group], right.at[0], right.at[1]);
        multiply_add<T>(sums[group][2 * i + 1], left[group], right.at[2], right.at[3]);
      }
    }
  }
}

}  // namespace zeroplan::runtime::cuda
