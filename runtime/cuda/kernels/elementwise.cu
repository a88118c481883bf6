// SwiGLU, GELU, tanh and sums: one pass over memory each.
#include "runtime/cuda/kernels/each.cuh"
#include "runtime/cuda/kernels/groups.cuh"

namespace zeroplan::runtime::cuda {
namespace {

// The forms are those of runtime/kernels/cpu_elementwise.cpp, where their sources stand.
constexpr float kInner = 0.79788456080286535588F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;
constexpr float kInverseRootTwo = 0.70710678118654752440F;

__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }

struct SwiGlu {
  __device__ float operator()(float gate, float up) const { return gate * sigmoid(gate) * up; }
};
struct Gelu {
  bool exact;
  __device__ float operator()(float x) const {
    if (exact) return 0.5F * x * (1.0F + erff(x * kInverseRootTwo));
    return 0.5F * x * (1.0F + tanhf(kInner * (x + kCubic * x * x * x)));
  }
};
struct GeluBackward {
  bool exact;
  __device__ float operator()(float d, float x) const {
    if (exact) {
      const float density = expf(-0.5F * x * x) * 0.5F * kInner;  // of the normal distribution
      return d * (0.5F * (1.0F + erff(x * kInverseRootTwo)) + x * density);
    }
    const float t = tanhf(kInner * (x + kCubic * x * x * x));
    const float inner_slope = kInner * (1.0F + 3.0F * kCubic * x * x);
    return d * (0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner_slope);
  }
};
struct Tanh {
  __device__ float operator()(float x) const { return tanhf(x); }
};
struct TanhBackward {
  __device__ float operator()(float d, float y) const { return d * (1.0F - y * y); }
};
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// y = f(a)
template <typename T, typename F>
struct MapOne {
  static constexpr int kCount = kPack<T>;
  T* y;
  const T* a;
  F f;
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> values = read<kElements>(a + i);
#pragma unroll
    for (int k = 0; k < kElements; ++k) values.at[k] = f(values.at[k]);
    write(y + i, values);
  }
};

// y = f(a, b)
template <typename T, typename F>
struct MapTwo {
  static constexpr int kCount = kPack<T>;
  T* y;
  const T *a, *b;
  F f;
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> values = read<kElements>(a + i);
    const Floats<kElements> others = read<kElements>(b + i);
#pragma unroll
    for (int k = 0; k < kElements; ++k) values.at[k] = f(values.at[k], others.at[k]);
    write(y + i, values);
  }
};

template <typename T>
struct SwiGluBackward {
  static constexpr int kCount = kPack<T>;
  T *d_gate, *d_up;
  const T *d_y, *gate, *up;
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> d = read<kElements>(d_y + i);
    Floats<kElements> g = read<kElements>(gate + i);
    const Floats<kElements> u = read<kElements>(up + i);
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const float s = sigmoid(g.at[k]);
      const float slope = s * (1.0F + g.at[k] * (1.0F - s));
      const float activated = g.at[k] * s;
      g.at[k] = d.at[k] * u.at[k] * slope;
      d.at[k] *= activated;
    }
    write(d_gate + i, g);
    write(d_up + i, d);
  }
};

template <typename T, typename F>
void map_one(const Run& run, F f) {
  const MapOne<T, F> operation{run.at<T>(0), run.at<T>(1), f};
  const bool by_packs = aligned(operation.y, 16) && aligned(operation.a, 16);
  for_each(run.stream, operation, run.call.rows * run.call.columns, by_packs);
}

template <typename T, typename F>
void map_two(const Run& run, F f) {
  const MapTwo<T, F> operation{run.at<T>(0), run.at<T>(1), run.at<T>(2), f};
  const bool by_packs =
      aligned(operation.y, 16) && aligned(operation.a, 16) && aligned(operation.b, 16);
  for_each(run.stream, operation, run.call.rows * run.call.columns, by_packs);
}

template <typename T>
void swiglu_backward(const Run& run) {
  const SwiGluBackward<T> operation{
      run.at<T>(0), run.at<T>(1), run.at<T>(2), run.at<T>(3), run.at<T>(4)};
  bool by_packs = true;
  for (const Operand& operand : run.operands) by_packs = by_packs && aligned(operand.data, 16);
  for_each(run.stream, operation, run.call.rows * run.call.columns, by_packs);
}

}  // namespace

template <typename T>
void run_elementwise(const Run& run) {
  const bool exact = run.call.exact_gelu;
  switch (run.call.kernel) {
    case Kernel::swiglu_forward:
      return map_two<T>(run, SwiGlu{});
    case Kernel::swiglu_backward:
      return swiglu_backward<T>(run);
    case Kernel::gelu_forward:
      return map_one<T>(run, Gelu{exact});
    case Kernel::gelu_backward:
      return map_two<T>(run, GeluBackward{exact});
    case Kernel::tanh_forward:
      return map_one<T>(run, Tanh{});
    case Kernel::tanh_backward:
      return map_two<T>(run, TanhBackward{});
    default:  // add
      return map_two<T>(run, Add{});
  }
}

ZP_CUDA_KERNELS(run_elementwise);

}  // namespace zeroplan::runtime::cuda
