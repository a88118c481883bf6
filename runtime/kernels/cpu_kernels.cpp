// Kernels on the CPU: checks a call's operands and hands it to its group.
#include "runtime/kernels/cpu_kernels.hpp"

#include <string>

#include "model/check.hpp"

namespace zeroplan::runtime {
namespace {

template <typename T>
void run_group(const cpu::Run& run) {
  switch (run.call.kernel) {
    case Kernel::none:
      return;
    case Kernel::embedding_forward:
    case Kernel::embedding_backward:
    case Kernel::position_forward:
    case Kernel::position_backward:
    case Kernel::rotary_forward:
    case Kernel::rotary_backward:
      return cpu::run_table<T>(run);
    case Kernel::rms_norm_forward:
    case Kernel::rms_norm_backward:
    case Kernel::layer_norm_forward:
    case Kernel::layer_norm_backward:
      return cpu::run_norm<T>(run);
    case Kernel::linear_forward:
    case Kernel::linear_backward_input:
    case Kernel::linear_backward_weight:
    case Kernel::linear_backward_bias:
      return cpu::run_linear<T>(run);
    case Kernel::attention_forward:
    case Kernel::attention_backward:
      return cpu::run_attention<T>(run);
    case Kernel::swiglu_forward:
    case Kernel::swiglu_backward:
    case Kernel::gelu_forward:
    case Kernel::gelu_backward:
    case Kernel::tanh_forward:
    case Kernel::tanh_backward:
    case Kernel::add:
      return cpu::run_elementwise<T>(run);
    case Kernel::cross_entropy_forward:
    case Kernel::cross_entropy_backward:
      return cpu::run_loss<T>(run);
  }
}

// The format of weights and activations; the same for all of a call's operands.
DType check_operands(const KernelCall& call, std::span<const Operand> operands) {
  const std::vector<OperandUse> uses = operand_uses(call);
  const std::string kernel(name(call.kernel));
  ZP_CHECK(uses.size() == operands.size(), kernel + ": number of operands");
  DType model = DType::fp32;
  bool known = false;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (operands[i].data == nullptr) {
      ZP_CHECK(call.operands[i].from == KernelOperand::From::none,
               kernel + ": operand without memory");
      continue;
    }
    ZP_CHECK(operands[i].elements.count() == uses[i].elements,
             kernel + ": size of operand " + std::to_string(i));
    const DType type = operands[i].dtype;
    switch (uses[i].type) {
      case OperandUse::Type::fp32:
        ZP_CHECK(type == DType::fp32, kernel + ": fp32 operand");
        break;
      case OperandUse::Type::int64:
        ZP_CHECK(type == DType::int64, kernel + ": int64 operand");
        break;
      case OperandUse::Type::model:
        ZP_CHECK(!known || type == model, kernel + ": operands of one format");
        model = type;
        known = true;
        break;
    }
  }
  return model;
}

class CpuKernels final : public Kernels {
 public:
  explicit CpuKernels(int threads) : pool_(threads) {}

  void run(const KernelCall& call, std::span<const Operand> operands) override {
    const DType dtype = check_operands(call, operands);
    const cpu::Run run{pool_, call, operands};
    switch (dtype) {
      case DType::fp32:
        return run_group<float>(run);
      case DType::bf16:
        return run_group<Bf16>(run);
      case DType::fp16:
        return run_group<Fp16>(run);
      default:
        ZP_CHECK(false, "kernels compute in fp32, bf16 and fp16");
    }
  }

 private:
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Kernels> cpu_kernels(int threads) { return std::make_unique<CpuKernels>(threads); }

}  // namespace zeroplan::runtime
