// The 16-bit formats on the CPU: stored as bits, computed with in fp32. Rounds to nearest, ties to
// even, as torch does.
#pragma once

#include <bit>
#include <cstdint>

namespace zeroplan::runtime {

struct Bf16 {
  std::uint16_t bits = 0;
};
struct Fp16 {
  std::uint16_t bits = 0;
};

inline float to_float(float value) { return value; }

inline float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits; subnormals are fraction * 2^-24.
inline float to_float(Fp16 value) {
  const std::uint32_t sign = (static_cast<std::uint32_t>(value.bits) & 0x8000U) << 16U;
  const std::uint32_t exponent = (value.bits >> 10U) & 0x1fU;
  const std::uint32_t fraction = value.bits & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1fU ? 0xffU : exponent + 112U;
  return std::bit_cast<float>(sign | (wide << 23U) | (fraction << 13U));
}

template <typename T>
T from_float(float value);

template <>
inline float from_float<float>(float value) {
  return value;
}

template <>
inline Bf16 from_float<Bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {0x7fc0U};  // NaN stays NaN
  const std::uint32_t rounding = 0x7fffU + ((bits >> 16U) & 1U);
  return {static_cast<std::uint16_t>((bits + rounding) >> 16U)};
}

template <>
inline Fp16 from_float<Fp16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U)};
  if (magnitude >= 0x477ff000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};  // overflows
  if (magnitude < 0x38800000U) {
    // Subnormal: adding 0.5 puts the fraction's last bit, 2^-24, at fp32's last bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0xffffU))};
  }
  const std::uint32_t rounding = 0xfffU + ((magnitude >> 13U) & 1U);
  return {static_cast<std::uint16_t>(sign | ((magnitude - (112U << 23U) + rounding) >> 13U))};
}

}  // namespace zeroplan::runtime
