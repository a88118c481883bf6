// Names of enumerators, so that a table keyed by them does not spell each again.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

namespace zeroplan {

// "pcie_copy_efficiency" for Coefficient::pcie_copy_efficiency; by the compiler's text of the
// function, which GCC and clang end with "V = namespace::Enum::name" and "]" or ";".
template <auto V>
consteval std::string_view enumerator_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("V = ") + 4);
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}

// The names of the first `Count` enumerators, which are numbered from 0.
template <typename Enum, std::size_t Count>
consteval std::array<std::string_view, Count> enumerator_names() {
  return []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array{enumerator_name<static_cast<Enum>(I)>()...};
  }
  (std::make_index_sequence<Count>());
}

}  // namespace zeroplan
