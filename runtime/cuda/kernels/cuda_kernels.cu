// Kernels on a CUDA device: checks a call's operands and hands it to its group. And the workspaces.
#include <map>
#include <mutex>

#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/kernels/groups.cuh"

namespace zeroplan::runtime::cuda {
namespace {

// One a device and stream; streams of other threads come and go meanwhile.
struct Workspace {
  std::byte* memory = nullptr;
  bool lent = false;
};
struct Workspaces {
  std::mutex mutex;
  std::map<std::pair<int, Stream>, Workspace> all;
};
// Never destroyed: kernels that live as long as the program give theirs back at its very end.
Workspaces& workspaces() {
  static Workspaces& instance = *new Workspaces;
  return instance;
}

template <typename T>
void run_group(const Run& run) {
  switch (run.call.kernel) {
    case Kernel::none:
      return;
    case Kernel::embedding_forward:
    case Kernel::embedding_backward:
    case Kernel::position_forward:
    case Kernel::position_backward:
    case Kernel::rotary_forward:
    case Kernel::rotary_backward:
      return run_table<T>(run);
    case Kernel::rms_norm_forward:
    case Kernel::rms_norm_backward:
    case Kernel::layer_norm_forward:
    case Kernel::layer_norm_backward:
      return run_norm<T>(run);
    case Kernel::linear_forward:
    case Kernel::linear_backward_input:
    case Kernel::linear_backward_weight:
    case Kernel::linear_backward_bias:
      return run_linear<T>(run);
    case Kernel::attention_forward:
    case Kernel::attention_backward:
      return run_attention<T>(run);
    case Kernel::swiglu_forward:
    case Kernel::swiglu_backward:
    case Kernel::gelu_forward:
    case Kernel::gelu_backward:
    case Kernel::tanh_forward:
    case Kernel::tanh_backward:
    case Kernel::add:
      return run_elementwise<T>(run);
    case Kernel::cross_entropy_forward:
    case Kernel::cross_entropy_backward:
      return run_loss<T>(run);
  }
}

class CudaKernels final : public Kernels {
 public:
  CudaKernels(Stream stream, const KernelOptions& options)
      : stream_(stream),
        gemm_(make_gemm(stream, options)),
        library_(make_library_attention(stream, options)) {}
  ~CudaKernels() override {
    library_.reset();
    gemm_.reset();
    release_workspace(stream_);
  }

  void run(const KernelCall& call, std::span<const Operand> operands) override {
    const DType dtype = check_operands(call, operands);
    const Run run{stream_, *gemm_, library_.get(), call, operands};
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
  Bytes workspace_bytes() const override { return cuda::workspace_bytes(); }
  void use_workspace(std::byte* memory) override {
    release_workspace(stream_);
    if (memory != nullptr) lend_workspace(stream_, memory);
  }

 private:
  Stream stream_;
  std::unique_ptr<Gemm> gemm_;
  std::unique_ptr<LibraryAttention> library_;
};

}  // namespace

Bytes workspace_bytes() { return Bytes::of(kWorkspace); }

std::byte* workspace(Stream stream) {
  Workspaces& held = workspaces();
  const std::lock_guard lock(held.mutex);
  Workspace& one = held.all[{current_device(), stream}];
  if (one.memory == nullptr) one.memory = allocate_memory(kWorkspace);
  return one.memory;
}

void lend_workspace(Stream stream, std::byte* memory) {
  Workspaces& held = workspaces();
  const std::lock_guard lock(held.mutex);
  held.all[{current_device(), stream}] = {memory, true};
}

void release_workspace(Stream stream) {
  Workspaces& held = workspaces();
  const std::lock_guard lock(held.mutex);
  const auto found = held.all.find({current_device(), stream});
  if (found == held.all.end()) return;
  if (!found->second.lent) free_memory(stream, found->second.memory);
  held.all.erase(found);
}

std::unique_ptr<Kernels> cuda_kernels(Stream stream, const KernelOptions& options) {
  return std::make_unique<CudaKernels>(stream, options);
}

}  // namespace zeroplan::runtime::cuda
