// The groups of kernels on the CPU, each for fp32, bf16 and fp16 operands. Inside, everything is
// fp32. Internal to runtime/kernels/cpu_*.cpp.
#pragma once

#include <span>

#include "runtime/kernels/cpu_float.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/kernels/thread_pool.hpp"

namespace zeroplan::runtime::cpu {

struct Run {
  ThreadPool& pool;
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

}  // namespace zeroplan::runtime::cpu

// Instantiates a group for the three formats. No parentheses: the argument is a name.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ZP_CPU_KERNELS(group)                                 \
  template void group<float>(const Run&);                     \
  template void group<::zeroplan::runtime::Bf16>(const Run&); \
  template void group<::zeroplan::runtime::Fp16>(const Run&)
// NOLINTEND(bugprone-macro-parentheses)
