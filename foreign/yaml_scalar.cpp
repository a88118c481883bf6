#include "foreign/yaml_scalar.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace zeroplan::foreign {
namespace {

template <std::size_t N>
bool is_one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

constexpr std::array<std::string_view, 5> kNull = {"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 9> kTrue = {
    "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"};
constexpr std::array<std::string_view, 9> kFalse = {
    "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"};

// Without the underscores that may stand between digits.
std::string digits_of(std::string_view text) {
  std::string digits(text);
  std::erase(digits, '_');
  return digits;
}

std::optional<std::int64_t> whole(std::string_view digits, int base) {
  std::int64_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number, base);
  if (digits.empty() || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<Json> integer(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text[0] == '_' || text[0] == '-') return std::nullopt;
  const std::string digits = digits_of(text);
  std::optional<std::int64_t> number;
  if (digits.starts_with("0b")) {
    number = whole(std::string_view(digits).substr(2), 2);
  } else if (digits.starts_with("0x")) {
    number = whole(std::string_view(digits).substr(2), 16);
  } else if (digits.size() > 1 && digits[0] == '0') {
    number = whole(digits, 8);
  } else {
    number = whole(digits, 10);
  }
  if (!number) return std::nullopt;
  return Json(negative ? -*number : *number);
}

// With a point; an exponent has a sign.
std::optional<Json> real(std::string_view text) {
  std::string digits = digits_of(text);
  if (digits.starts_with('+')) digits.erase(0, 1);
  const std::size_t point = digits.find('.');
  const std::size_t exponent = digits.find_first_of("eE");
  if (point == std::string::npos || digits.find_first_of("0123456789") == std::string::npos) {
    return std::nullopt;
  }
  if (exponent != std::string::npos) {
    const bool has_sign = exponent + 1 < digits.size() &&
                          (digits[exponent + 1] == '+' || digits[exponent + 1] == '-');
    if (exponent < point || !has_sign) return std::nullopt;
    if (digits[exponent + 1] == '+') digits.erase(exponent + 1, 1);
  }
  double number = 0.0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  return Json(number);
}

}  // namespace

Json plain_scalar(std::string_view text) {
  if (is_one_of(text, kNull)) return {};
  if (is_one_of(text, kTrue)) return true;
  if (is_one_of(text, kFalse)) return false;
  if (const auto number = integer(text)) return *number;
  if (const auto number = real(text)) return *number;
  return text;
}

}  // namespace zeroplan::foreign
