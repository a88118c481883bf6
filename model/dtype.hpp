// Number formats of tensors and their width.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.hpp"

namespace zeroplan {

enum class DType { fp32, bf16, fp16, fp64, int64, int8, uint8, boolean };

// Bytes of one element.
constexpr std::int64_t width(DType type) {
  switch (type) {
    case DType::fp64:
    case DType::int64:
      return 8;
    case DType::fp32:
      return 4;
    case DType::bf16:
    case DType::fp16:
      return 2;
    case DType::int8:
    case DType::uint8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

constexpr std::string_view name(DType type) {
  switch (type) {
    case DType::fp64:
      return "fp64";
    case DType::int64:
      return "int64";
    case DType::fp32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::fp16:
      return "fp16";
    case DType::int8:
      return "int8";
    case DType::uint8:
      return "uint8";
    case DType::boolean:
      return "bool";
  }
  return "";
}

constexpr Bytes operator*(Elements elements, DType type) {
  return elements.times_width(width(type));
}

}  // namespace zeroplan
