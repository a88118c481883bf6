// A warp's matrix operations in emulation, with the fragments of the PTX ISA (sections "Matrix
// Fragments for mma.m16n8k16 with floating point type" and "ldmatrix"): which lane holds which
// element in which register.
#pragma once

#include <array>

#include "tests/cuda_emulation/emulator.hpp"
#include "runtime/kernels/cpu_float.hpp"

namespace zeroplan::runtime::cuda::emulation {

struct MatrixLane {
  const void* row = nullptr;  // of eight 16-bit numbers
  std::uint32_t registers[4] = {};
};

// ldmatrix.sync.aligned.m8n8.x4(.trans).shared.b16: lane 8 i + r gives row r of matrix i, and gets
// in register i elements (lane / 4, 2 (lane % 4)) and the next one in its row; transposed: the
// next one in its column of (2 (lane % 4), lane / 4).
template <bool kTransposed>
void resolve_load(void* const (&lanes)[32]) {
  const auto at = [&](int lane) { return static_cast<MatrixLane*>(lanes[lane]); };
  for (int lane = 0; lane < 32; ++lane) {
    if (reinterpret_cast<std::uintptr_t>(at(lane)->row) % 16 != 0) {
      throw Fault("ldmatrix: a row that is not aligned to 16 bytes");
    }
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::array<std::uint16_t, 2> pair{};
      for (int k = 0; k < 2; ++k) {
        const int row = kTransposed ? 2 * (lane % 4) + k : lane / 4;
        const int column = kTransposed ? lane / 4 : 2 * (lane % 4) + k;
        const auto* from = static_cast<const std::byte*>(at(matrix * 8 + row)->row);
        std::memcpy(&pair[static_cast<std::size_t>(k)], from + column * 2, 2);
      }
      at(lane)->registers[matrix] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16U;
    }
  }
}

struct ProductLane {
  const std::uint32_t *a, *b;
  float* d;
};

template <typename T>
float half_of(std::uint32_t word, int k) {
  return to_float(T{static_cast<std::uint16_t>(word >> (16 * k))});
}

// mma.sync.aligned.m16n8k16.row.col.f32.T.T.f32, d += a b.
template <typename T>
void resolve_product(void* const (&lanes)[32]) {
  const auto at = [&](int lane) { return static_cast<ProductLane*>(lanes[lane]); };
  float a[16][16];
  float b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4;
    const int pair = 2 * (lane % 4);
    for (int k = 0; k < 2; ++k) {
      a[group][pair + k] = half_of<T>(at(lane)->a[0], k);
      a[group + 8][pair + k] = half_of<T>(at(lane)->a[1], k);
      a[group][pair + 8 + k] = half_of<T>(at(lane)->a[2], k);
      a[group + 8][pair + 8 + k] = half_of<T>(at(lane)->a[3], k);
      b[pair + k][group] = half_of<T>(at(lane)->b[0], k);
      b[pair + 8 + k][group] = half_of<T>(at(lane)->b[1], k);
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i >= 2 ? 8 : 0);
      const int column = 2 * (lane % 4) + i % 2;
      for (int k = 0; k < 16; ++k) at(lane)->d[i] += a[row][k] * b[k][column];
    }
  }
}

}  // namespace zeroplan::runtime::cuda::emulation
