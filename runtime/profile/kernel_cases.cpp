#include "runtime/profile/kernel_cases.hpp"

#include <cmath>

#include "base/check.hpp"

namespace zeroplan::runtime {
namespace {

std::size_t operands_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::gelu_forward:
      return 2;
    case Kernel::add:
    case Kernel::swiglu_forward:
    case Kernel::gelu_backward:
      return 3;
    case Kernel::rms_norm_forward:
      return 4;
    case Kernel::swiglu_backward:
      return 5;
    case Kernel::rms_norm_backward:
    case Kernel::layer_norm_forward:
      return 6;
    case Kernel::layer_norm_backward:
      return 8;
    default:
      ZP_CHECK(false, "a kernel that goes by rows");
  }
}

}  // namespace

KernelCall linear_call(Kernel kernel, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  KernelCall call;
  call.kernel = kernel;
  call.operands.resize(3, {KernelOperand::From::storage, 0});
  if (kernel == Kernel::linear_forward) call.operands.emplace_back();  // no bias
  call.rows = tokens;
  call.columns = out;
  call.inner = in;
  return call;
}

double product_flops(std::int64_t tokens, std::int64_t out, std::int64_t in) {
  return 2.0 * static_cast<double>(tokens) * static_cast<double>(out) * static_cast<double>(in);
}

MatrixProduct matrix_product(
    Kernel kernel, std::int64_t tokens, std::int64_t out, std::int64_t in, DType dtype) {
  switch (kernel) {
    case Kernel::linear_backward_input:
      return {1, tokens, in, out, dtype};
    case Kernel::linear_backward_weight:
      return {1, out, in, tokens, dtype};
    default:
      return {1, tokens, out, in, dtype};
  }
}

KernelCall rowwise_call(Kernel kernel, std::int64_t rows, std::int64_t columns) {
  KernelCall call;
  call.kernel = kernel;
  call.operands.resize(operands_of(kernel), {KernelOperand::From::storage, 0});
  call.rows = rows;
  call.columns = columns;
  call.epsilon = 1e-5;
  return call;
}

KernelCall attention_call(Kernel kernel,
                          std::int64_t batch,
                          std::int64_t sequence,
                          std::int64_t heads,
                          std::int64_t head_dim) {
  KernelCall call;
  call.kernel = kernel;
  call.operands.resize(kernel == Kernel::attention_forward ? 5 : 10,
                       {KernelOperand::From::storage, 0});
  call.batch = batch;
  call.sequence = sequence;
  call.rows = batch * sequence;
  call.heads = call.kv_heads = heads;
  call.head_dim = head_dim;
  call.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  call.causal = true;
  return call;
}

double attention_flops(const KernelCall& call) {
  const auto s = static_cast<double>(call.sequence);
  const auto width_of_all = static_cast<double>(call.batch * call.heads * call.head_dim);
  return 2.0 * width_of_all * s * s * (call.kernel == Kernel::attention_forward ? 1.0 : 2.5);
}

DType dtype_of(OperandUse::Type type, DType model) {
  switch (type) {
    case OperandUse::Type::model:
      return model;
    case OperandUse::Type::fp32:
      return DType::fp32;
    case OperandUse::Type::int64:
      return DType::int64;
  }
  return model;
}

double traffic_bytes(const KernelCall& call, DType model) {
  double bytes = 0.0;
  for (const OperandUse& use : operand_uses(call)) {
    const double once =
        static_cast<double>(use.elements) * static_cast<double>(width(dtype_of(use.type, model)));
    bytes += use.access == Access::update ? 2.0 * once : once;
  }
  return bytes;
}

std::string_view text_of(DType dtype) {
  return dtype == DType::fp32 ? "fp32" : dtype == DType::bf16 ? "bf16" : "fp16";
}

}  // namespace zeroplan::runtime
