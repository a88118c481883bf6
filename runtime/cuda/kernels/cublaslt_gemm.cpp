// GemmCall by cuBLASLt. Algorithms are asked for once a shape; none that adds the parts of a sum in
// the output's format is allowed.
//
// A bias has an alignment, too, which the heuristics read off its address (cublasLt.h,
// CUBLASLT_MATMUL_DESC_BIAS_POINTER) and kernels take to be 16 bytes (pytorch/pytorch#194497). One
// that begins elsewhere, as in flat memory behind an odd parameter, is copied to the end of the
// workspace first.
#include <array>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "base/check.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/kernels/gemm.hpp"
#include "runtime/cuda/kernels/workspace.hpp"

namespace zeroplan::runtime::cuda {
namespace {

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status));
}

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string("cudaMemcpyAsync of a bias: ") + cudaGetErrorName(status));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
    default:
      ZP_CHECK(false, "products of fp32, bf16 and fp16");
  }
}

// The largest power of two up to 256, what cudaMalloc gives, that divides the address.
std::uint32_t alignment_of(const std::byte* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

// What an algorithm depends on.
using Key = std::tuple<std::int64_t,
                       std::int64_t,
                       std::int64_t,
                       std::int64_t,
                       std::int64_t,
                       std::int64_t,
                       bool,
                       bool,
                       bool,
                       bool,
                       DType,
                       std::array<std::uint32_t, 4>>;
Key key_of(const GemmCall& call) {
  return {
      call.m,
      call.n,
      call.k,
      call.lda,
      call.ldb,
      call.ldc,
      call.transpose_a,
      call.transpose_b,
      call.accumulate,
      call.bias != nullptr,
      call.dtype,
      {alignment_of(call.a), alignment_of(call.b), alignment_of(call.c), alignment_of(call.bias)}};
}

constexpr std::uint32_t kBiasAlignment = 16;
bool moves_bias(const GemmCall& call) {
  return call.bias != nullptr && alignment_of(call.bias) < kBiasAlignment;
}
// What a bias that is copied takes of the workspace's end.
std::int64_t room_of_bias(const GemmCall& call) {
  return moves_bias(call) ? round_up(call.m * width(call.dtype), 256) : 0;
}

// A shape's descriptors and its algorithms.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const GemmCall& call, bool tf32) {
    const cudaDataType_t type = type_of(call.dtype);
    const bool fast = tf32 && call.dtype == DType::fp32;
    const cublasComputeType_t compute = fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(cublasLtMatmulDescCreate(&product_, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    try {
      describe(call, type);
      choose(handle, call);
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~Plan() { destroy(); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run(cublasLtHandle_t handle, const GemmCall& call, std::byte* memory, Stream stream) {
    if (call.bias != nullptr) {
      const std::byte* bias = call.bias;
      if (moves_bias(call)) {
        std::byte* moved = memory + room_;
        const auto bytes = static_cast<std::size_t>(call.m * width(call.dtype));
        check(cudaMemcpyAsync(moved, bias, bytes, cudaMemcpyDeviceToDevice, stream));
        bias = moved;
      }
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
    cublasStatus_t status = multiply(handle, call, memory, stream);
    // Found, and refused all the same: nothing was put on the stream, and there is a next one.
    while (status == CUBLAS_STATUS_NOT_SUPPORTED && algorithm_ + 1 < algorithms_) {
      ++algorithm_;
      status = multiply(handle, call, memory, stream);
    }
    check(status, "cublasLtMatmul");
  }

 private:
  static constexpr int kAlgorithms = 4;

  cublasStatus_t multiply(cublasLtHandle_t handle,
                          const GemmCall& call,
                          std::byte* memory,
                          Stream stream) {
    const float alpha = 1.0F;
    const float beta = call.accumulate ? 1.0F : 0.0F;
    return cublasLtMatmul(handle,
                          product_,
                          &alpha,
                          call.a,
                          a_,
                          call.b,
                          b_,
                          &beta,
                          call.c,
                          c_,
                          call.c,
                          c_,
                          &found_[static_cast<std::size_t>(algorithm_)].algo,
                          memory,
                          static_cast<std::size_t>(room_),
                          stream);
  }
  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }
  static void layout(cublasLtMatrixLayout_t& made,
                     cudaDataType_t type,
                     std::int64_t rows,
                     std::int64_t columns,
                     std::int64_t leading) {
    check(cublasLtMatrixLayoutCreate(&made,
                                     type,
                                     static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns),
                                     leading),
          "cublasLtMatrixLayoutCreate");
  }

  void describe(const GemmCall& call, cudaDataType_t type) {
    const cublasOperation_t a = call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t b = call.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, b);
    if (call.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      // Aligned as it is, or as its copy.
      alignas(256) static constexpr std::byte kMoved{};  // an address that nobody reads
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, moves_bias(call) ? &kMoved : call.bias);
    }
    layout(
        a_, type, call.transpose_a ? call.k : call.m, call.transpose_a ? call.m : call.k, call.lda);
    layout(
        b_, type, call.transpose_b ? call.n : call.k, call.transpose_b ? call.k : call.n, call.ldb);
    layout(c_, type, call.m, call.n, call.ldc);
  }

  void choose(cublasLtHandle_t handle, const GemmCall& call) {
    check(cublasLtMatmulPreferenceCreate(&preference_), "cublasLtMatmulPreferenceCreate");
    room_ = workspace_bytes().count() - room_of_bias(call);
    ZP_CHECK(room_ >= 0, "a bias fits the workspace");
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(room_));
    // Split sums are added in fp32 by a pass of their own, or not at all.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(call.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(call.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(call.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(call.c));
    check(cublasLtMatmulAlgoGetHeuristic(handle,
                                         product_,
                                         a_,
                                         b_,
                                         c_,
                                         c_,
                                         preference_,
                                         kAlgorithms,
                                         found_.data(),
                                         &algorithms_),
          "cublasLtMatmulAlgoGetHeuristic");
    if (algorithms_ == 0) {
      throw std::runtime_error("cublasLtMatmulAlgoGetHeuristic: no algorithm for m " +
                               std::to_string(call.m) + ", n " + std::to_string(call.n) + ", k " +
                               std::to_string(call.k));
    }
  }
  template <typename Value>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  }

  void destroy() {
    if (preference_ != nullptr) cublasLtMatmulPreferenceDestroy(preference_);
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
    if (product_ != nullptr) cublasLtMatmulDescDestroy(product_);
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, kAlgorithms> found_{};
  int algorithms_ = 0;
  int algorithm_ = 0;      // the one that is used
  std::int64_t room_ = 0;  // bytes of workspace, before a bias
};

class CublasLtGemm final : public Gemm {
 public:
  CublasLtGemm(Stream stream, const KernelOptions& options) : stream_(stream), options_(options) {
    check(cublasLtCreate(&handle_), "cublasLtCreate");
  }
  ~CublasLtGemm() override {
    plans_.clear();
    cublasLtDestroy(handle_);
  }
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  void run(const GemmCall& call) override {
    std::unique_ptr<Plan>& plan = plans_[key_of(call)];
    if (plan == nullptr) plan = std::make_unique<Plan>(handle_, call, options_.tf32);
    plan->run(handle_, call, workspace(stream_), stream_);
  }

 private:
  Stream stream_;
  KernelOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm(Stream stream, const KernelOptions& options) {
  return std::make_unique<CublasLtGemm>(stream, options);
}

}  // namespace zeroplan::runtime::cuda
