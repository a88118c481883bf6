// One string table per enumeration: text in documents and flags <-> value in the program.
//
//   enum class Precision { bf16, fp16, fp32 };
//   inline constexpr EnumNames<Precision, 3> kPrecisionNames{"bf16", "fp16", "fp32"};
//   name(kPrecisionNames, Precision::bf16)    -> "bf16"
//   find(kPrecisionNames, "fp16")             -> Precision::fp16, or nothing
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace zeroplan {

template <typename Enum, std::size_t N>
struct EnumNames {
  std::array<std::string_view, N> names;  // in the order of the enumerators
};

template <typename Enum, std::size_t N>
constexpr std::string_view name(const EnumNames<Enum, N>& table, Enum value) {
  return table.names[static_cast<std::size_t>(value)];
}

template <typename Enum, std::size_t N>
constexpr std::optional<Enum> find(const EnumNames<Enum, N>& table, std::string_view text) {
  for (std::size_t i = 0; i < N; ++i) {
    if (table.names[i] == text) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace zeroplan
