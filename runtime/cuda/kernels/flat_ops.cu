// What the engine does with flat memory: conversions, sums, norms, AdamW.
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "base/check.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/kernels/each.cuh"

namespace zeroplan::runtime::cuda {
namespace {

// Calls body with a value of the format's type.
template <typename Body>
void with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::fp32:
      return body(float{});
    case DType::bf16:
      return body(Bf16{});
    case DType::fp16:
      return body(Fp16{});
    default:
      ZP_CHECK(false, "a dtype of weights");
  }
}

template <typename A, typename B>
constexpr int pack_of() {
  return static_cast<int>(16 / (sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B)));
}

template <typename To, typename From>
struct Convert {
  static constexpr int kCount = pack_of<To, From>();
  To* to;
  const From* from;
  float factor;
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> values = read<kElements>(from + i);
#pragma unroll
    for (int k = 0; k < kElements; ++k) values.at[k] *= factor;
    write(to + i, values);
  }
};

template <typename To, typename From>
struct AddTo {
  static constexpr int kCount = pack_of<To, From>();
  To* to;
  const From* from;
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> sum = read<kElements>(to + i);
    const Floats<kElements> values = read<kElements>(from + i);
#pragma unroll
    for (int k = 0; k < kElements; ++k) sum.at[k] += values.at[k];
    write(to + i, sum);
  }
};

template <template <typename, typename> class Operation, typename To, typename From>
bool packs_fit(const std::byte* to, const std::byte* from) {
  constexpr auto kCount = static_cast<std::size_t>(Operation<To, From>::kCount);
  return aligned(to, kCount * sizeof(To)) && aligned(from, kCount * sizeof(From));
}

// State: the format of weights, moments and gradient. Rounded: that of a copy of the new weights,
// or void.
template <typename State, typename Rounded>
struct AdamWUpdate {
  static constexpr int kCount = 4;
  State *weights, *first, *second;
  const State* gradient;
  Rounded* rounded;
  AdamWFactors f;
  // As runtime/optimizer/adamw.cpp, operation by operation: __fmul_rn and __fadd_rn are never
  // fused.
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Floats<kElements> w = read<kElements>(weights + i);
    Floats<kElements> m = read<kElements>(first + i);
    Floats<kElements> v = read<kElements>(second + i);
    const Floats<kElements> d = read<kElements>(gradient + i);
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const float g = __fmul_rn(d.at[k], f.scale);
      m.at[k] = __fadd_rn(__fmul_rn(f.beta1, m.at[k]), __fmul_rn(1.0F - f.beta1, g));
      v.at[k] = __fadd_rn(__fmul_rn(f.beta2, v.at[k]), __fmul_rn(1.0F - f.beta2, __fmul_rn(g, g)));
      const float below = __fadd_rn(__fmul_rn(sqrtf(v.at[k]), f.correction2), f.epsilon);
      w.at[k] = __fsub_rn(__fmul_rn(w.at[k], f.keep), __fmul_rn(f.rate, m.at[k] / below));
    }
    write(weights + i, w);
    write(first + i, m);
    write(second + i, v);
    if constexpr (!std::is_void_v<Rounded>) write(rounded + i, w);
  }
};

constexpr std::int64_t kSumBlocks = 1024;

// partial[block] = the sum of squares of the elements that fall to the block.
template <typename T>
__global__ void __launch_bounds__(kEachThreads)
    squares_kernel(double* partial, const T* data, std::int64_t count, std::int64_t packs) {
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  double sum = 0.0;
  for (std::int64_t i = first; i < packs; i += stride) {
    const Floats<kPack<T>> values = read<kPack<T>>(data + i * kPack<T>);
#pragma unroll
    for (int k = 0; k < kPack<T>; ++k) {
      sum += static_cast<double>(values.at[k]) * static_cast<double>(values.at[k]);
    }
  }
  for (std::int64_t i = packs * kPack<T> + first; i < count; i += stride) {
    const auto value = static_cast<double>(value_of(data[i]));
    sum += value * value;
  }
  sum = block_sum(sum, reinterpret_cast<double*>(shared_memory()));
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kEachThreads)
    add_partials_kernel(double* to, const double* partial, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum, reinterpret_cast<double*>(shared_memory()));
  if (threadIdx.x == 0) *to += sum;
}

template <typename T>
struct FindOverflow {
  static constexpr int kCount = kPack<T>;
  const T* data;
  double* flag;
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    const Floats<kElements> values = read<kElements>(data + i);
    bool found = false;
#pragma unroll
    for (int k = 0; k < kElements; ++k) found = found || !(fabsf(values.at[k]) <= FLT_MAX);
    // Whoever comes first: all write the same.
    if (found && *flag < 1.0) *flag = 1.0;
  }
};

}  // namespace

void convert(Stream stream,
             const std::byte* from,
             DType from_dtype,
             std::byte* to,
             DType to_dtype,
             Elements count,
             double factor) {
  if (count.count() == 0) return;
  if (from_dtype == to_dtype && factor == 1.0) {
    if (from != to) {
      copy_memory(stream, to, from, static_cast<std::size_t>((count * to_dtype).count()));
    }
    return;
  }
  with_type(from_dtype, [&](auto from_type) {
    with_type(to_dtype, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      const Convert<To, From> operation{reinterpret_cast<To*>(to),
                                        reinterpret_cast<const From*>(from),
                                        static_cast<float>(factor)};
      for_each(stream, operation, count.count(), packs_fit<Convert, To, From>(to, from));
    });
  });
}

void add_to(Stream stream,
            std::byte* to,
            DType to_dtype,
            const std::byte* from,
            DType from_dtype,
            Elements count) {
  with_type(from_dtype, [&](auto from_type) {
    with_type(to_dtype, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      const AddTo<To, From> operation{reinterpret_cast<To*>(to),
                                      reinterpret_cast<const From*>(from)};
      for_each(stream, operation, count.count(), packs_fit<AddTo, To, From>(to, from));
    });
  });
}

void add_squares_of(
    Stream stream, const std::byte* data, DType dtype, Elements count, double* device_sum) {
  if (count.count() == 0) return;
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    const std::int64_t packs = aligned(data, 16) ? count.count() / kPack<T> : 0;
    const std::int64_t turns = packs > 0 ? packs : count.count();
    const std::int64_t blocks = std::min(kSumBlocks, divide_up(turns, kEachThreads));
    auto* partial = reinterpret_cast<double*>(workspace(stream));
    constexpr std::size_t kScratch = 32 * sizeof(double);
    launch(squares_kernel<T>,
           grid_of(blocks),
           kEachThreads,
           kScratch,
           stream,
           partial,
           reinterpret_cast<const T*>(data),
           count.count(),
           packs);
    launch(add_partials_kernel, 1, kEachThreads, kScratch, stream, device_sum, partial, blocks);
  });
}

void find_overflow(
    Stream stream, const std::byte* data, DType dtype, Elements count, double* device_flag) {
  with_type(dtype, [&](auto type) {
    using T = decltype(type);
    const FindOverflow<T> operation{reinterpret_cast<const T*>(data), device_flag};
    for_each(stream, operation, count.count(), aligned(data, 16));
  });
}

template <typename State, typename Rounded>
void update(Stream stream, const UpdateState& state, const AdamWFactors& factors) {
  const AdamWUpdate<State, Rounded> operation{reinterpret_cast<State*>(state.weights),
                                              reinterpret_cast<State*>(state.first_moment),
                                              reinterpret_cast<State*>(state.second_moment),
                                              reinterpret_cast<const State*>(state.gradient),
                                              reinterpret_cast<Rounded*>(state.rounded),
                                              factors};
  constexpr std::size_t kPack = AdamWUpdate<State, Rounded>::kCount * sizeof(State);
  bool by_packs = aligned(state.weights, kPack) && aligned(state.first_moment, kPack) &&
                  aligned(state.second_moment, kPack) && aligned(state.gradient, kPack);
  if constexpr (!std::is_void_v<Rounded>) {
    by_packs =
        by_packs && aligned(state.rounded, AdamWUpdate<State, Rounded>::kCount * sizeof(Rounded));
  }
  for_each(stream, operation, state.elements.count(), by_packs);
}

void adamw(Stream stream,
           const UpdateState& state,
           const AdamWOptions& options,
           std::int64_t step,
           double gradient_scale) {
  const AdamWFactors factors = adamw_factors(options, step, gradient_scale);
  with_type(state.dtype, [&](auto own) {
    using State = decltype(own);
    if (state.rounded == nullptr) return update<State, void>(stream, state, factors);
    with_type(state.rounded_dtype,
              [&](auto copy) { update<State, decltype(copy)>(stream, state, factors); });
  });
}

}  // namespace zeroplan::runtime::cuda
