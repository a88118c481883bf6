// GemmCall by its definition, element by element: what cuBLASLt is asked for, where there is none.
// Checks what cuBLASLt checks of its descriptors.
#include "tests/cuda_emulation/capture.hpp"
#include "tests/cuda_emulation/emulator.hpp"
#include "runtime/cuda/kernels/gemm.hpp"
#include "runtime/kernels/cpu_float.hpp"

namespace zeroplan::runtime::cuda {
namespace {

template <typename T>
void product(const GemmCall& call) {
  const auto* a = reinterpret_cast<const T*>(call.a);
  const auto* b = reinterpret_cast<const T*>(call.b);
  const auto* bias = reinterpret_cast<const T*>(call.bias);
  auto* c = reinterpret_cast<T*>(call.c);
  for (std::int64_t column = 0; column < call.n; ++column) {
    for (std::int64_t row = 0; row < call.m; ++row) {
      float sum = 0.0F;
      for (std::int64_t i = 0; i < call.k; ++i) {
        const T left = call.transpose_a ? a[i + row * call.lda] : a[row + i * call.lda];
        const T right = call.transpose_b ? b[column + i * call.ldb] : b[i + column * call.ldb];
        sum += to_float(left) * to_float(right);
      }
      T& to = c[row + column * call.ldc];
      if (call.accumulate) sum += to_float(to);
      if (bias != nullptr) sum += to_float(bias[row]);
      to = from_float<T>(sum);
    }
  }
}

class ReferenceGemm final : public Gemm {
 public:
  explicit ReferenceGemm(Stream stream) : stream_(stream) {}

  void run(const GemmCall& call) override {
    if (call.m < 1 || call.n < 1 || call.k < 1) throw emulation::Fault("an empty product");
    if (call.lda < (call.transpose_a ? call.k : call.m) ||
        call.ldb < (call.transpose_b ? call.n : call.k) || call.ldc < call.m) {
      throw emulation::Fault("a leading dimension is less than the rows of its matrix");
    }
    if (call.dtype == DType::fp32) return order<float>(call);
    if (call.dtype == DType::bf16) return order<Bf16>(call);
    if (call.dtype == DType::fp16) return order<Fp16>(call);
    throw emulation::Fault("a dtype of weights");
  }

 private:
  template <typename T>
  void order(const GemmCall& call) {
    emulation::order(stream_, [call] { product<T>(call); });
  }

  Stream stream_;
};

}  // namespace

std::unique_ptr<Gemm> make_gemm(Stream stream, const KernelOptions&) {
  return std::make_unique<ReferenceGemm>(stream);
}

}  // namespace zeroplan::runtime::cuda
