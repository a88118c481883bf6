// What C++20's library has and the library of Debian 12's emscripten (libc++ 13) lacks. The build
// for browsers includes it before every source (cmake/Browser.cmake), so that no other source knows
// of it; nothing of it is left with a libc++ that has these.
//
// Additions to namespace std are not the program's to make: they are made here alone, for one
// library whose text is known, with the meaning of the standard.
#pragma once

#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 14000

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace std {

template <class To, class From>
requires(sizeof(To) == sizeof(From) && is_trivially_copyable_v<To> &&
         is_trivially_copyable_v<From>) constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

template <class T, size_t N>
constexpr auto operator<=>(const array<T, N>& a, const array<T, N>& b) -> decltype(a[0] <=> b[0]) {
  for (size_t i = 0; i < N; ++i) {
    if (const auto order = a[i] <=> b[i]; order != 0) return order;
  }
  return strong_ordering::equal;
}

namespace missing {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The end of what strtod() takes for a number as from_chars() does: "12", "-1.5", ".5", "1e-3",
// "inf", "nan"; no blanks, no plus sign before it, no hexadecimal digits. `first` where there is
// none.
inline const char* end_of_number(const char* first, const char* last, chars_format format) {
  const char* at = first;
  const auto digits = [&] {
    const char* const begin = at;
    while (at != last && is_digit(*at)) ++at;
    return at - begin;
  };
  const auto word = [&](string_view lower) {
    if (static_cast<size_t>(last - at) < lower.size()) return false;
    for (size_t i = 0; i < lower.size(); ++i) {
      if (static_cast<char>(at[i] | 0x20) != lower[i]) return false;
    }
    at += lower.size();
    return true;
  };
  if (at != last && *at == '-') ++at;
  if (word("infinity") || word("inf") || word("nan")) return at;
  auto count = digits();
  if (at != last && *at == '.') {
    ++at;
    count += digits();
  }
  if (count == 0) return first;
  const bool takes_exponent = (format & chars_format::scientific) == chars_format::scientific;
  if (takes_exponent && at != last && (*at == 'e' || *at == 'E')) {
    const char* const mantissa = at++;
    if (at != last && (*at == '+' || *at == '-')) ++at;
    if (digits() == 0) at = mantissa;
  }
  return at;
}

}  // namespace missing

// strtod() of musl rounds correctly, and there is no locale but "C".
inline from_chars_result from_chars(const char* first,
                                    const char* last,
                                    double& value,
                                    chars_format format = chars_format::general) {
  const char* const end = missing::end_of_number(first, last, format);
  if (end == first) return {first, errc::invalid_argument};
  const string text(first, end);
  const double number = strtod(text.c_str(), nullptr);
  const bool zero = text.find_first_of("123456789") == string::npos;
  const bool spelled = text.find_first_of("iInN") != string::npos;
  if ((isinf(number) && !spelled) || (number == 0.0 && !zero)) {
    return {end, errc::result_out_of_range};
  }
  value = number;
  return {end, errc()};
}

// Fixed notation alone, which is what is used.
inline to_chars_result to_chars(
    char* first, char* last, double value, chars_format format, int precision) {
  if (format != chars_format::fixed) abort();
  array<char, 512> text{};
  const int length = snprintf(text.data(), text.size(), "%.*f", precision, value);
  if (length < 0 || length > last - first || length >= static_cast<int>(text.size())) {
    return {last, errc::value_too_large};
  }
  return {copy(text.begin(), text.begin() + length, first), errc()};
}

}  // namespace std

#endif
