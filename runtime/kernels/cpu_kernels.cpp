// Kernels on the CPU: checks a call's operands and hands it to its group.
#include "runtime/kernels/cpu_kernels.hpp"

#include "base/check.hpp"

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
