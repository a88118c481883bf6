// The groups of kernels on the device, each for fp32, bf16 and fp16 operands, as on the CPU
// (runtime/kernels/cpu_kernels.hpp). Internal to runtime/cuda/kernels.
#pragma once

#include <span>

#include "base/check.hpp"
#include "runtime/cuda/kernels/gemm.hpp"
#include "runtime/cuda/kernels/library_attention.hpp"
#include "runtime/cuda/kernels/numbers.cuh"
#include "runtime/kernels/kernels.hpp"

namespace zeroplan::runtime::cuda {

struct Run {
  Stream stream;
  Gemm& gemm;
  LibraryAttention* library;  // or none
  const KernelCall& call;
  std::span<const Operand> operands;

  template <typename T>
  T* at(std::size_t operand) const {
    return operands[operand].as<T>();
  }
};

template <typename T>
void run_table(const Run& run);  // embedding_*, position_*, rotary_*
template <typename T>
void run_norm(const Run& run);
template <typename T>
void run_linear(const Run& run);
template <typename T>
void run_attention(const Run& run);
template <typename T>
void run_elementwise(const Run& run);
template <typename T>
void run_loss(const Run& run);

// to[i] (+)= the sum over p of partial[p][i], in fp64, in an order that `parts` alone decides.
template <typename T>
void sum_partials(Stream stream,
                  T* to,
                  const float* partial,
                  std::int64_t parts,
                  std::int64_t columns,
                  bool accumulate);

}  // namespace zeroplan::runtime::cuda

// Instantiates a group for the three formats.
#define ZP_CUDA_KERNELS(group)                                \
  template void group<float>(const Run&);                     \
  template void group<::zeroplan::runtime::Bf16>(const Run&); \
  template void group<::zeroplan::runtime::Fp16>(const Run&)
