#include "runtime/engine/tensor_ops.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.hpp"
#include "base/half_floats.hpp"
#include "runtime/optimizer/adamw.hpp"

namespace zeroplan::runtime {
namespace {

constexpr std::int64_t kBlock = 2048;
using Block = std::array<float, kBlock>;

// Elements [begin, begin + count) as floats; fp32 is not copied.
std::span<const float> floats_of(
    const std::byte* data, DType dtype, std::int64_t begin, std::int64_t count, Block& scratch) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == DType::fp32) return {reinterpret_cast<const float*>(data) + begin, size};
  const auto* half = reinterpret_cast<const std::uint16_t*>(data) + begin;
  ZP_CHECK(dtype == DType::bf16 || dtype == DType::fp16, "a dtype of weights");
  if (dtype == DType::bf16) {
    for (std::size_t i = 0; i < size; ++i) scratch[i] = float_of_bf16(half[i]);
  } else {
    for (std::size_t i = 0; i < size; ++i) scratch[i] = float_of_fp16(half[i]);
  }
  return {scratch.data(), size};
}

void store(std::span<const float> values, std::byte* data, DType dtype, std::int64_t begin) {
  if (dtype == DType::fp32) {
    float* to = reinterpret_cast<float*>(data) + begin;
    if (to != values.data()) std::memmove(to, values.data(), values.size_bytes());
    return;
  }
  auto* half = reinterpret_cast<std::uint16_t*>(data) + begin;
  ZP_CHECK(dtype == DType::bf16 || dtype == DType::fp16, "a dtype of weights");
  if (dtype == DType::bf16) {
    for (std::size_t i = 0; i < values.size(); ++i) half[i] = bf16_of_float(values[i]);
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) half[i] = fp16_of_float(values[i]);
  }
}

// Calls body(begin, count) for consecutive blocks.
template <typename Body>
void by_blocks(Elements elements, Body&& body) {
  for (std::int64_t begin = 0; begin < elements.count(); begin += kBlock) {
    body(begin, std::min(kBlock, elements.count() - begin));
  }
}

}  // namespace

void convert(const std::byte* from,
             DType from_dtype,
             std::byte* to,
             DType to_dtype,
             Elements count,
             double factor) {
  if (from_dtype == to_dtype && factor == 1.0) {
    if (from != to) std::memmove(to, from, static_cast<std::size_t>((count * to_dtype).count()));
    return;
  }
  Block read;
  Block scaled;
  const auto times = static_cast<float>(factor);
  by_blocks(count, [&](std::int64_t begin, std::int64_t size) {
    const std::span<const float> values = floats_of(from, from_dtype, begin, size, read);
    for (std::size_t i = 0; i < values.size(); ++i) scaled[i] = values[i] * times;
    store({scaled.data(), values.size()}, to, to_dtype, begin);
  });
}

void add_to(
    std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype, Elements count) {
  Block a;
  Block b;
  Block sum;
  by_blocks(count, [&](std::int64_t begin, std::int64_t size) {
    const std::span<const float> first = floats_of(to, to_dtype, begin, size, a);
    const std::span<const float> second = floats_of(from, from_dtype, begin, size, b);
    for (std::size_t i = 0; i < first.size(); ++i) sum[i] = first[i] + second[i];
    store({sum.data(), first.size()}, to, to_dtype, begin);
  });
}

double squares_of(const std::byte* data, DType dtype, Elements count) {
  double sum = 0.0;
  Block read;
  by_blocks(count, [&](std::int64_t begin, std::int64_t size) {
    sum += sum_of_squares(floats_of(data, dtype, begin, size, read));
  });
  return sum;
}

bool overflows(const std::byte* data, DType dtype, Elements count) {
  bool found = false;
  Block read;
  by_blocks(count, [&](std::int64_t begin, std::int64_t size) {
    found = found || has_inf_or_nan(floats_of(data, dtype, begin, size, read));
  });
  return found;
}

}  // namespace zeroplan::runtime
