// Sums over ranks that share one device, element by element in the order of the ranks.
#include <type_traits>

#include "base/check.hpp"
#include "runtime/cuda/kernels/cuda_kernels.hpp"
#include "runtime/cuda/kernels/each.cuh"

namespace zeroplan::runtime::cuda {
namespace {

struct Inputs {
  const std::byte* at[kMostRanks];
};

// As a kernel computes with a stored number: 16-bit formats in fp32, others as they are.
template <typename T>
struct Computed {
  using Type = T;
  __device__ static T value(T x) { return x; }
  __device__ static T store(T x) { return x; }
};
template <typename T>
struct ComputedInFloat {
  using Type = float;
  __device__ static float value(T x) { return value_of(x); }
  __device__ static T store(float x) { return stored<T>(x); }
};
template <>
struct Computed<Bf16> : ComputedInFloat<Bf16> {};
template <>
struct Computed<Fp16> : ComputedInFloat<Fp16> {};

template <typename T, bool kMaximum>
struct Combine {
  static constexpr int kCount = kPack<T>;
  using Number = typename Computed<T>::Type;
  T* to;
  int ranks;
  Inputs inputs;
  template <int kElements>
  __device__ Pack<T, kElements> pack(int rank, std::int64_t i) const {
    return *reinterpret_cast<const Pack<T, kElements>*>(inputs.at[rank] + i * sizeof(T));
  }
  template <int kElements>
  __device__ void at(std::int64_t i) const {
    Number sum[kElements];
    const Pack<T, kElements> first = pack<kElements>(0, i);
#pragma unroll
    for (int k = 0; k < kElements; ++k) sum[k] = Computed<T>::value(first.at[k]);
    for (int rank = 1; rank < ranks; ++rank) {
      const Pack<T, kElements> next = pack<kElements>(rank, i);
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const Number value = Computed<T>::value(next.at[k]);
        if constexpr (kMaximum) {
          sum[k] = sum[k] < value ? value : sum[k];  // std::max
        } else {
          sum[k] += value;
        }
      }
    }
    Pack<T, kElements> out;
#pragma unroll
    for (int k = 0; k < kElements; ++k) out.at[k] = Computed<T>::store(sum[k]);
    *reinterpret_cast<Pack<T, kElements>*>(to + i) = out;
  }
};

template <typename T>
void combine_as(
    Stream stream, const Inputs& inputs, int ranks, std::byte* to, Elements count, bool maximum) {
  bool by_packs = aligned(to, 16);
  for (int rank = 0; rank < ranks; ++rank) by_packs = by_packs && aligned(inputs.at[rank], 16);
  auto* out = reinterpret_cast<T*>(to);
  if (maximum) {
    for_each(stream, Combine<T, true>{out, ranks, inputs}, count.count(), by_packs);
  } else {
    for_each(stream, Combine<T, false>{out, ranks, inputs}, count.count(), by_packs);
  }
}

}  // namespace

void sum_of_ranks(Stream stream,
                  const std::byte* const* device_inputs,
                  int ranks,
                  std::byte* to,
                  DType dtype,
                  Elements count,
                  ReduceOperation operation) {
  ZP_CHECK(ranks >= 1 && ranks <= kMostRanks, "1 to kMostRanks ranks on one device");
  Inputs inputs{};
  for (int rank = 0; rank < ranks; ++rank) inputs.at[rank] = device_inputs[rank];
  const bool maximum = operation == ReduceOperation::maximum;
  switch (dtype) {
    case DType::fp32:
      return combine_as<float>(stream, inputs, ranks, to, count, maximum);
    case DType::fp64:
      return combine_as<double>(stream, inputs, ranks, to, count, maximum);
    case DType::bf16:
      return combine_as<Bf16>(stream, inputs, ranks, to, count, maximum);
    case DType::fp16:
      return combine_as<Fp16>(stream, inputs, ranks, to, count, maximum);
    case DType::int64:
      return combine_as<std::int64_t>(stream, inputs, ranks, to, count, maximum);
    case DType::uint8:
      ZP_CHECK(maximum, "uint8: maximum alone");
      return combine_as<std::uint8_t>(stream, inputs, ranks, to, count, maximum);
    case DType::int8:
    case DType::boolean:
      break;
  }
  ZP_CHECK(false, "no sums of this dtype");
}

}  // namespace zeroplan::runtime::cuda
