// Attention by cuDNN: plans by shape, in slices that fit into the stream's workspace.
#include <array>
#include <map>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "runtime/cuda/cudnn/cudnn_graph.hpp"
#include "runtime/cuda/cudnn/slices.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/kernels/workspace.hpp"

namespace zeroplan::runtime::cuda {
namespace {

std::string version_text(const CudnnLibrary& library) {
  const std::size_t version = library.version();  // 91900
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class CudnnAttention final : public LibraryAttention {
 public:
  CudnnAttention(Stream stream, AttentionBy by)
      : stream_(stream),
        required_(by == AttentionBy::library),
        ordered_(by == AttentionBy::reproducible) {}
  ~CudnnAttention() override {
    plans_.clear();
    if (handle_ != nullptr) library_->destroy(handle_);
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  bool run(const AttentionProblem& asked, const AttentionMemory& memory) override {
    if (!open()) return false;
    AttentionProblem problem = asked;
    problem.ordered = problem.ordered || ordered_;
    auto [found, is_new] = plans_.try_emplace(problem);
    Planned& planned = found->second;
    if (is_new) plan(problem, planned);
    if (planned.plan != nullptr && !done(problem, planned, memory)) planned.plan.reset();
    if (planned.plan == nullptr) {
      refusal_ = planned.refusal;
      return false;
    }
    last_ordered_ = planned.slice.ordered;
    return true;
  }
  std::string name() const override {
    return version_text(*library_) + (last_ordered_ ? "" : ", sums in any order");
  }
  std::string refusal() const override { return refusal_; }

 private:
  struct Planned {
    AttentionProblem slice;
    std::unique_ptr<CudnnPlan> plan;
    std::string refusal;
  };

  // At the first problem: the library is hundreds of megabytes.
  bool open() {
    if (handle_ != nullptr) return true;
    if (!refusal_.empty() && library_ == nullptr) return false;
    const char* why = nullptr;
    library_ = cudnn_library(&why);
    std::string problem = library_ == nullptr ? why : "";
    if (library_ != nullptr) {
      cudnnStatus_t status = library_->create(&handle_);
      if (status == CUDNN_STATUS_SUCCESS) status = library_->set_stream(handle_, stream_);
      if (status == CUDNN_STATUS_SUCCESS) return true;
      problem = std::string("cudnnCreate: ") + library_->error_string(status);
      if (handle_ != nullptr) library_->destroy(std::exchange(handle_, nullptr));
      library_ = nullptr;
    }
    if (required_) {
      throw InputError(Diagnostic{.file = "environment",
                                  .pointer = std::string(kAttentionVariable),
                                  .expected = "own",
                                  .got = "cudnn, and there is none: " + problem,
                                  .hint = "install libcudnn where the loader finds it"});
    }
    refusal_ = problem;
    return false;
  }

  // What cuDNN made a plan for it may refuse all the same when it is to run: then it is not asked
  // again. In a capture a refusal may be the capture's, and is its end.
  bool done(const AttentionProblem& problem, Planned& planned, const AttentionMemory& memory) {
    try {
      for (const AttentionMemory& slice : slices_of(problem, planned.slice, memory)) {
        planned.plan->run(slice, workspace(stream_));
      }
      return true;
    } catch (const CudnnError& error) {
      cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
      const cudaError_t asked = cudaStreamIsCapturing(stream_, &capture);
      if (asked != cudaSuccess || capture != cudaStreamCaptureStatusNone) throw;
      planned.refusal = version_text(*library_) + ": " + error.what();
      return false;
    }
  }

  // The first of the candidates that has a plan within the workspace. A plan takes a third of a
  // second, so none is made that cannot fit.
  void plan(const AttentionProblem& problem, Planned& to) {
    const std::string cudnn = version_text(*library_);
    const std::vector<AttentionProblem> tried = candidates(problem, kWorkspace);
    if (tried.empty()) {
      const AttentionProblem least = slices(problem).back();
      to.refusal =
          fmt::format("{}: its workspace for one group of heads is {} MiB and more, not {}",
                      cudnn,
                      least_workspace(least) >> 20,
                      kWorkspace >> 20);
    }
    std::array<bool, 2> unknown{};  // a slice of another size is the same graph
    for (const AttentionProblem& slice : tried) {
      if (unknown[slice.ordered ? 1 : 0]) continue;
      try {
        auto made = std::make_unique<CudnnPlan>(*library_, slice, CudnnTarget{handle_, {}});
        if (made->workspace_bytes() <= kWorkspace) {
          to.slice = slice;
          to.plan = std::move(made);
          return;
        }
        to.refusal = fmt::format("{}: its workspace for one group of heads is {} MiB, not {}",
                                 cudnn,
                                 made->workspace_bytes() >> 20,
                                 kWorkspace >> 20);
      } catch (const CudnnError& error) {
        to.refusal = cudnn + ": " + error.what();
        unknown[slice.ordered ? 1 : 0] = true;
      }
    }
  }

  Stream stream_;
  bool required_, ordered_;
  bool last_ordered_ = true;
  const CudnnLibrary* library_ = nullptr;
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionProblem, Planned> plans_;
  std::string refusal_;
};

}  // namespace

std::unique_ptr<LibraryAttention> make_library_attention(Stream stream,
                                                         const KernelOptions& options) {
  const AttentionBy by = asked_attention(options);
  if (by == AttentionBy::own) return nullptr;
  return std::make_unique<CudnnAttention>(stream, by);
}

}  // namespace zeroplan::runtime::cuda
