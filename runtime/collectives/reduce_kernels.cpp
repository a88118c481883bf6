#include "runtime/collectives/reduce_kernels.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "base/half_floats.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements summed at once: a few KiB on the stack

template <typename Stored, typename Sum, typename Read, typename Write>
void combine_as(std::span<const std::byte* const> inputs,
                std::span<std::byte* const> outputs,
                std::int64_t count,
                ReduceOperation operation,
                Read read,
                Write write) {
  std::array<Sum, kBlock> sums;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, count - begin);
    const auto* first = reinterpret_cast<const Stored*>(inputs[0]) + begin;
    for (std::int64_t i = 0; i < size; ++i) sums[static_cast<std::size_t>(i)] = read(first[i]);
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      const auto* next = reinterpret_cast<const Stored*>(inputs[r]) + begin;
      if (operation == ReduceOperation::sum) {
        for (std::int64_t i = 0; i < size; ++i) sums[static_cast<std::size_t>(i)] += read(next[i]);
      } else {
        for (std::int64_t i = 0; i < size; ++i) {
          Sum& sum = sums[static_cast<std::size_t>(i)];
          sum = std::max(sum, read(next[i]));
        }
      }
    }
    for (std::byte* output : outputs) {
      auto* out = reinterpret_cast<Stored*>(output) + begin;
      for (std::int64_t i = 0; i < size; ++i) out[i] = write(sums[static_cast<std::size_t>(i)]);
    }
  }
}

template <typename T>
T same(T value) {
  return value;
}

}  // namespace

void combine(std::span<const std::byte* const> inputs,
             std::span<std::byte* const> outputs,
             std::int64_t count,
             DType dtype,
             ReduceOperation operation) {
  switch (dtype) {
    case DType::fp32:
      combine_as<float, float>(inputs, outputs, count, operation, same<float>, same<float>);
      return;
    case DType::fp64:
      combine_as<double, double>(inputs, outputs, count, operation, same<double>, same<double>);
      return;
    case DType::bf16:
      combine_as<std::uint16_t, float>(
          inputs, outputs, count, operation, float_of_bf16, bf16_of_float);
      return;
    case DType::fp16:
      combine_as<std::uint16_t, float>(
          inputs, outputs, count, operation, float_of_fp16, fp16_of_float);
      return;
    case DType::int64:
      combine_as<std::int64_t, std::int64_t>(
          inputs, outputs, count, operation, same<std::int64_t>, same<std::int64_t>);
      return;
    case DType::uint8:
      combine_as<std::uint8_t, std::uint8_t>(
          inputs, outputs, count, operation, same<std::uint8_t>, same<std::uint8_t>);
      return;
    case DType::int8:
    case DType::boolean:
      break;
  }
  ZP_CHECK(false, "no sums of this dtype");
}

}  // namespace zeroplan::runtime
