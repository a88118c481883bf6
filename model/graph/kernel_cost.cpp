#include "model/graph/kernel_cost.hpp"

#include <algorithm>

namespace zeroplan {
namespace {

OpKind kind_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::embedding_forward:
      return OpKind::gather;
    case Kernel::embedding_backward:
    case Kernel::position_backward:
      return OpKind::scatter;
    case Kernel::rms_norm_forward:
    case Kernel::rms_norm_backward:
    case Kernel::layer_norm_forward:
    case Kernel::layer_norm_backward:
      return OpKind::norm;
    case Kernel::linear_forward:
    case Kernel::linear_backward_input:
    case Kernel::linear_backward_weight:
      return OpKind::matmul;
    case Kernel::linear_backward_bias:
      return OpKind::reduction;
    case Kernel::attention_forward:
    case Kernel::attention_backward:
      return OpKind::attention;
    case Kernel::cross_entropy_forward:
    case Kernel::cross_entropy_backward:
      return OpKind::softmax;
    default:
      return OpKind::pointwise;
  }
}

std::int64_t width_of(OperandUse::Type type, DType dtype) {
  switch (type) {
    case OperandUse::Type::model:
      return width(dtype);
    case OperandUse::Type::fp32:
      return width(DType::fp32);
    case OperandUse::Type::int64:
      return width(DType::int64);
  }
  return 0;
}

// A lookup touches the rows of the tokens and not the whole table; the gradient of a table is
// written whole.
std::int64_t touched(const KernelCall& call, std::size_t operand, const OperandUse& use) {
  const bool looked_up = (call.kernel == Kernel::embedding_forward && operand == 2) ||
                         (call.kernel == Kernel::position_forward && operand == 1);
  return looked_up ? std::min(use.elements, call.rows * call.columns) : use.elements;
}

// Queries, keys and values in one storage move once; what is written over its input moves twice.
bool counted_before(const KernelCall& call, const std::vector<OperandUse>& uses, std::size_t i) {
  const KernelOperand& operand = call.operands[i];
  for (std::size_t j = 0; j < i; ++j) {
    const KernelOperand& other = call.operands[j];
    if (other.from == operand.from && other.index == operand.index &&
        other.first == operand.first && uses[j].access == uses[i].access) {
      return true;
    }
  }
  return false;
}

Bytes traffic_of(const KernelCall& call, DType dtype) {
  const std::vector<OperandUse> uses = operand_uses(call);
  Bytes traffic;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (call.operands[i].from == KernelOperand::From::none) continue;
    if (counted_before(call, uses, i)) continue;
    const Bytes once = Bytes::of(touched(call, i, uses[i]) * width_of(uses[i].type, dtype));
    traffic += uses[i].access == Access::update ? once * 2 : once;
  }
  return traffic;
}

MatrixProduct product_of(const KernelCall& call, DType dtype) {
  switch (call.kernel) {
    case Kernel::linear_backward_input:
      return {1, call.rows, call.inner, call.columns, dtype};
    case Kernel::linear_backward_weight:
      return {1, call.columns, call.inner, call.rows, dtype};
    default:  // linear_forward
      return {1, call.rows, call.columns, call.inner, dtype};
  }
}

AttentionCall attention_of(const KernelCall& call, DType dtype) {
  AttentionCall attention;
  attention.batch = call.batch;
  attention.heads = call.heads;
  attention.kv_heads = call.kv_heads;
  attention.queries = attention.keys = call.sequence;
  attention.head_dim = call.head_dim;
  attention.causal = call.causal;
  attention.backward = call.kernel == Kernel::attention_backward;
  attention.backend = SdpaBackend::flash;
  attention.dtype = dtype;
  attention.alibi = call.alibi;
  return attention;
}

}  // namespace

KernelCost kernel_cost(const KernelCall& call, DType dtype) {
  KernelCost cost;
  cost.kind = kind_of(call.kernel);
  cost.traffic = traffic_of(call, dtype);
  if (cost.kind == OpKind::matmul) {
    cost.product = product_of(call, dtype);
    cost.flops = flops_of(*cost.product);
  } else if (cost.kind == OpKind::attention) {
    cost.attention = attention_of(call, dtype);
    cost.flops = flops_of(*cost.attention);
  }
  return cost;
}

}  // namespace zeroplan
