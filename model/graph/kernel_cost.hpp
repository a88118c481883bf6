// What a kernel call of the embedded runtime costs, in the terms of an Operation: the one place
// that prices a call.
#pragma once

#include <optional>

#include "model/dtype.hpp"
#include "model/graph/graph.hpp"

namespace zeroplan {

struct KernelCost {
  OpKind kind = OpKind::pointwise;
  Flops flops;
  Bytes traffic;  // each distinct operand once, twice where it is read and written
  std::optional<MatrixProduct> product;    // Operation::shape of OpKind::matmul
  std::optional<AttentionCall> attention;  // of OpKind::attention
};

// `dtype`: of weights and activations.
KernelCost kernel_cost(const KernelCall& call, DType dtype);

}  // namespace zeroplan
