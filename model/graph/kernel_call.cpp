#include "model/graph/kernel_call.hpp"

#include "base/check.hpp"

namespace zeroplan {
namespace {

using Type = OperandUse::Type;

OperandUse read(std::int64_t elements, Type type = Type::model) {
  return {Access::read, elements, type};
}
OperandUse write(std::int64_t elements, Type type = Type::model) {
  return {Access::write, elements, type};
}
OperandUse update(std::int64_t elements) { return {Access::update, elements, Type::model}; }

std::vector<OperandUse> norm_uses(const KernelCall& c) {
  const std::int64_t whole = c.rows * c.columns;
  const OperandUse statistic = read(c.rows, Type::fp32);
  switch (c.kernel) {
    case Kernel::rms_norm_forward:
      return {write(whole), write(c.rows, Type::fp32), read(whole), read(c.columns)};
    case Kernel::rms_norm_backward:
      return {write(whole), write(c.columns), read(whole), read(whole), statistic, read(c.columns)};
    case Kernel::layer_norm_forward:
      return {write(whole),
              write(c.rows, Type::fp32),
              write(c.rows, Type::fp32),
              read(whole),
              read(c.columns),
              read(c.columns)};
    default:  // layer_norm_backward
      return {write(whole),
              write(c.columns),
              write(c.columns),
              read(whole),
              read(whole),
              statistic,
              statistic,
              read(c.columns)};
  }
}

std::vector<OperandUse> linear_uses(const KernelCall& c) {
  const std::int64_t in = c.rows * c.inner;
  const std::int64_t out = c.rows * c.columns;
  const std::int64_t weight = c.columns * c.inner;
  switch (c.kernel) {
    case Kernel::linear_forward:
      return {write(out), read(in), read(weight), read(c.columns)};
    case Kernel::linear_backward_input:
      return {write(in), read(out), read(weight)};
    case Kernel::linear_backward_weight:
      return {write(weight), read(out), read(in)};
    default:  // linear_backward_bias
      return {write(c.columns), read(out)};
  }
}

std::vector<OperandUse> attention_uses(const KernelCall& c) {
  const std::int64_t out = c.rows * c.heads * c.head_dim;
  const std::int64_t q = c.layout.fused() ? c.rows * c.layout.row_stride : out;
  const std::int64_t k =
      c.layout.fused() ? c.rows * c.layout.row_stride : c.rows * c.kv_heads * c.head_dim;
  const std::int64_t statistic = c.batch * c.heads * c.sequence;
  if (c.kernel == Kernel::attention_forward) {
    return {write(out), write(statistic, Type::fp32), read(q), read(k), read(k)};
  }
  return {write(q),
          write(k),
          write(k),
          write(statistic, Type::fp32),
          read(out),
          read(out),
          read(statistic, Type::fp32),
          read(q),
          read(k),
          read(k)};
}

std::vector<OperandUse> table_uses(const KernelCall& c) {
  const std::int64_t rows = c.rows * c.columns;
  const std::int64_t table = c.inner * c.columns;
  switch (c.kernel) {
    case Kernel::embedding_forward:
      return {write(rows), read(c.rows, Type::int64), read(table)};
    case Kernel::embedding_backward:
      return {write(table), read(c.rows, Type::int64), read(rows)};
    case Kernel::position_forward:
      return {update(rows), read(table)};
    default:  // position_backward
      return {write(table), read(rows)};
  }
}

std::vector<OperandUse> elementwise_uses(const KernelCall& c) {
  const std::int64_t all = c.rows * c.columns;
  switch (c.kernel) {
    case Kernel::swiglu_backward:
      return {write(all), write(all), read(all), read(all), read(all)};
    case Kernel::gelu_forward:
    case Kernel::tanh_forward:
      return {write(all), read(all)};
    default:  // swiglu_forward, gelu_backward, tanh_backward, add
      return {write(all), read(all), read(all)};
  }
}

std::vector<OperandUse> loss_uses(const KernelCall& c) {
  const std::int64_t logits = c.rows * c.columns;
  const OperandUse labels = read(labels_of(c), Type::int64);
  if (c.kernel == Kernel::cross_entropy_forward) {
    return {write(1, Type::fp32), write(c.rows, Type::fp32), read(logits), labels};
  }
  return {write(logits), read(logits), read(c.rows, Type::fp32), labels};
}

std::vector<OperandUse> uses_of(const KernelCall& c) {
  switch (c.kernel) {
    case Kernel::none:
      return {};
    case Kernel::embedding_forward:
    case Kernel::embedding_backward:
    case Kernel::position_forward:
    case Kernel::position_backward:
      return table_uses(c);
    case Kernel::rms_norm_forward:
    case Kernel::rms_norm_backward:
    case Kernel::layer_norm_forward:
    case Kernel::layer_norm_backward:
      return norm_uses(c);
    case Kernel::linear_forward:
    case Kernel::linear_backward_input:
    case Kernel::linear_backward_weight:
    case Kernel::linear_backward_bias:
      return linear_uses(c);
    case Kernel::rotary_forward:
    case Kernel::rotary_backward:
      return {update(c.rows * c.heads * c.head_dim), update(c.rows * c.kv_heads * c.head_dim)};
    case Kernel::attention_forward:
    case Kernel::attention_backward:
      return attention_uses(c);
    case Kernel::swiglu_forward:
    case Kernel::swiglu_backward:
    case Kernel::gelu_forward:
    case Kernel::gelu_backward:
    case Kernel::tanh_forward:
    case Kernel::tanh_backward:
    case Kernel::add:
      return elementwise_uses(c);
    case Kernel::cross_entropy_forward:
    case Kernel::cross_entropy_backward:
      return loss_uses(c);
  }
  return {};
}

}  // namespace

std::vector<OperandUse> operand_uses(const KernelCall& call) {
  std::vector<OperandUse> uses = uses_of(call);
  ZP_CHECK(uses.size() == call.operands.size(), "a kernel takes another number of operands");
  ZP_CHECK(call.chunk.first >= 0 && call.chunk.first + call.rows <= labels_of(call),
           "a chunk is a part of the rows");
  if (call.accumulate) uses.front().access = Access::update;
  return uses;
}

}  // namespace zeroplan
