// Calls of the runtime's kernels as a profile measures them, on any device: sizes, what they
// compute and what they move.
#pragma once

#include <string_view>

#include "model/dtype.hpp"
#include "model/graph/graph.hpp"
#include "model/graph/kernel_call.hpp"

namespace zeroplan::runtime {

// y[tokens, out] = x[tokens, in] weight[out, in] and its two gradients, without a bias.
// Precondition: a linear kernel other than linear_backward_bias.
KernelCall linear_call(Kernel kernel, std::int64_t tokens, std::int64_t out, std::int64_t in);
// 2 tokens out in, of each of the three.
double product_flops(std::int64_t tokens, std::int64_t out, std::int64_t in);
// The same product as the model names it (equation [T6]).
MatrixProduct matrix_product(
    Kernel kernel, std::int64_t tokens, std::int64_t out, std::int64_t in, DType dtype);

// Kernels a row of [rows, columns] or an element at a time, all operands in memory: norms, SwiGLU,
// GELU, addition.
KernelCall rowwise_call(Kernel kernel, std::int64_t rows, std::int64_t columns);

// Causal, as many key heads as heads.
KernelCall attention_call(Kernel kernel,
                          std::int64_t batch,
                          std::int64_t sequence,
                          std::int64_t heads,
                          std::int64_t head_dim);
// 4 S^2 D a head forward, halved by causality; 2.5 times that backward (Dao 2023,
// arXiv:2307.08691, section 4.1).
double attention_flops(const KernelCall& call);

// Of an operand of a call whose model is in that format.
DType dtype_of(OperandUse::Type type, DType model);
// What a call reads and writes of its operands.
double traffic_bytes(const KernelCall& call, DType model);

std::string_view text_of(DType dtype);  // "fp32", "bf16", "fp16"

}  // namespace zeroplan::runtime
