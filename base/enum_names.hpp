// One string table per enumeration: text in documents and flags <-> value in the program.
//
//   enum class Precision { bf16, fp16, fp32 };
//   inline constexpr EnumNames<Precision, 3> kPrecisionNames{"bf16", "fp16", "fp32"};
//   name(kPrecisionNames, Precision::bf16)    -> "bf16"
//   find(kPrecisionNames, "fp16")             -> Precision::fp16, or nothing
//
// Where the names are the enumerators' own, the compiler makes the table:
//   inline constexpr auto kPrecisionNames = enumerator_names<Precision>();
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

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

// "bf16" for Precision::bf16, and a text with a parenthesis for a number that no enumerator has; by
// the compiler's text of the function, which GCC and clang end with "V = namespace::Enum::name" and
// "]" or ";".
template <auto V>
consteval std::string_view enumerator_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("V = ") + 4);
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}

// How many enumerators there are, which are numbered from 0.
template <typename Enum, std::size_t From = 0>
consteval std::size_t enumerator_count() {
  constexpr bool kNone =
      enumerator_name<static_cast<Enum>(From)>().find(')') != std::string_view::npos;
  if constexpr (kNone) {
    return From;
  } else {
    return enumerator_count<Enum, From + 1>();
  }
}

template <typename Enum>
consteval auto enumerator_names() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return EnumNames<Enum, sizeof...(I)>{{enumerator_name<static_cast<Enum>(I)>()...}};
  }
  (std::make_index_sequence<enumerator_count<Enum>()>());
}

}  // namespace zeroplan
