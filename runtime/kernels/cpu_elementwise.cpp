// SwiGLU, GELU, tanh and sums.
#include <cmath>
#include <numbers>

#include "runtime/kernels/cpu_kernels.hpp"

namespace zeroplan::runtime::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// The tanh form: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). Hendrycks and Gimpel 2016,
// arXiv:1606.08415; transformers' gelu_new, gelu_pytorch_tanh and BLOOM's.
constexpr float kGeluInner = 0.79788456080286535588F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;
constexpr float kInverseRootTwo = std::numbers::sqrt2_v<float> / 2.0F;

float gelu(float x, bool exact) {
  if (exact) return 0.5F * x * (1.0F + std::erf(x * kInverseRootTwo));
  return 0.5F * x * (1.0F + std::tanh(kGeluInner * (x + kCubic * x * x * x)));
}

float gelu_slope(float x, bool exact) {
  if (exact) {
    const float density =
        std::exp(-0.5F * x * x) * 0.5F * kGeluInner;  // of the normal distribution
    return 0.5F * (1.0F + std::erf(x * kInverseRootTwo)) + x * density;
  }
  const float t = std::tanh(kGeluInner * (x + kCubic * x * x * x));
  return 0.5F * (1.0F + t) +
         0.5F * x * (1.0F - t * t) * kGeluInner * (1.0F + 3.0F * kCubic * x * x);
}

template <typename Body>
void for_all(const Run& run, Body body) {
  run.pool.run_ranges(
      run.call.rows * run.call.columns, kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) body(i);
      });
}

// y = f(a)
template <typename T, typename F>
void map_one(const Run& run, F f) {
  T* y = run.at<T>(0);
  const T* a = run.at<T>(1);
  for_all(run, [=](std::int64_t i) { y[i] = from_float<T>(f(to_float(a[i]))); });
}

// y = f(a, b)
template <typename T, typename F>
void map_two(const Run& run, F f) {
  T* y = run.at<T>(0);
  const T* a = run.at<T>(1);
  const T* b = run.at<T>(2);
  for_all(run, [=](std::int64_t i) { y[i] = from_float<T>(f(to_float(a[i]), to_float(b[i]))); });
}

// y = gate sigmoid(gate) up
template <typename T>
void swiglu_backward(const Run& run) {
  T* d_gate = run.at<T>(0);
  T* d_up = run.at<T>(1);
  const T* d_y = run.at<T>(2);
  const T* gate = run.at<T>(3);
  const T* up = run.at<T>(4);
  for_all(run, [=](std::int64_t i) {
    const float g = to_float(gate[i]);
    const float u = to_float(up[i]);
    const float d = to_float(d_y[i]);
    const float s = sigmoid(g);
    d_gate[i] = from_float<T>(d * u * s * (1.0F + g * (1.0F - s)));
    d_up[i] = from_float<T>(d * g * s);
  });
}

}  // namespace

template <typename T>
void run_elementwise(const Run& run) {
  const bool exact = run.call.exact_gelu;
  switch (run.call.kernel) {
    case Kernel::swiglu_forward:
      return map_two<T>(run, [](float gate, float up) { return gate * sigmoid(gate) * up; });
    case Kernel::swiglu_backward:
      return swiglu_backward<T>(run);
    case Kernel::gelu_forward:
      return map_one<T>(run, [=](float x) { return gelu(x, exact); });
    case Kernel::gelu_backward:
      return map_two<T>(run, [=](float d, float x) { return d * gelu_slope(x, exact); });
    case Kernel::tanh_forward:
      return map_one<T>(run, [](float x) { return std::tanh(x); });
    case Kernel::tanh_backward:
      return map_two<T>(run, [](float d, float y) { return d * (1.0F - y * y); });
    default:  // add
      return map_two<T>(run, [](float a, float b) { return a + b; });
  }
}

ZP_CPU_KERNELS(run_elementwise);

}  // namespace zeroplan::runtime::cpu
