#include "evidence/text_scanner.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace zeroplan::evidence {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

// PyTorch prints bytes, KiB, MiB and GiB (c10/cuda/CUDACachingAllocator.cpp:format_size), the
// kernel kB of 1024; the others come with people's own hands.
constexpr std::array kUnits = {Unit{"bytes", 1},
                               Unit{"byte", 1},
                               Unit{"kib", std::int64_t{1} << 10},
                               Unit{"mib", std::int64_t{1} << 20},
                               Unit{"gib", std::int64_t{1} << 30},
                               Unit{"tib", std::int64_t{1} << 40},
                               Unit{"kb", std::int64_t{1} << 10},
                               Unit{"b", 1}};

}  // namespace

void TextScanner::skip_space() {
  while (!at_end() && is_space(text_[at_])) ++at_;
}

void TextScanner::skip_any(std::string_view characters) {
  while (!at_end() &&
         (is_space(text_[at_]) || characters.find(text_[at_]) != std::string_view::npos)) {
    ++at_;
  }
}

bool TextScanner::take(std::string_view words) {
  std::size_t at = at_;
  while (at < text_.size() && is_space(text_[at])) ++at;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_space(words[i])) {
      if (at >= text_.size() || !is_space(text_[at])) return false;
      while (at < text_.size() && is_space(text_[at])) ++at;
    } else {
      if (at >= text_.size() || lower(text_[at]) != lower(words[i])) return false;
      ++at;
    }
  }
  at_ = at;
  return true;
}

std::optional<std::int64_t> TextScanner::integer() {
  std::size_t begin = at_;
  while (begin < text_.size() && is_space(text_[begin])) ++begin;
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text_.data() + begin, text_.data() + text_.size(), value);
  if (error != std::errc()) return std::nullopt;
  at_ = static_cast<std::size_t>(end - text_.data());
  return value;
}

std::optional<double> TextScanner::real() {
  std::size_t begin = at_;
  while (begin < text_.size() && is_space(text_[begin])) ++begin;
  double value = 0.0;
  const auto [end, error] =
      std::from_chars(text_.data() + begin, text_.data() + text_.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  at_ = static_cast<std::size_t>(end - text_.data());
  return value;
}

std::optional<TextScanner::Size> TextScanner::size() {
  TextScanner ahead = *this;
  ahead.skip_space();
  const std::size_t begin = ahead.at_;
  while (!ahead.at_end() && is_digit(text_[ahead.at_])) ++ahead.at_;
  if (ahead.at_ == begin) return std::nullopt;
  int decimals = 0;
  if (!ahead.at_end() && text_[ahead.at_] == '.') {
    ++ahead.at_;
    for (; !ahead.at_end() && is_digit(text_[ahead.at_]); ++ahead.at_) ++decimals;
  }
  const std::string_view digits = text_.substr(begin, ahead.at_ - begin);
  double number = 0.0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (parsed.ec != std::errc()) number = HUGE_VAL;
  for (const Unit& unit : kUnits) {
    TextScanner after = ahead;
    if (!after.take(unit.name)) continue;
    if (!after.at_end() && is_letter(text_[after.at_])) continue;
    at_ = after.at_;
    const auto width = static_cast<double>(unit.bytes);
    constexpr double kMostBytes = 1e18;  // PyTorch names no size above 2^60 bytes
    if (number * width > kMostBytes) return Size{};
    const double half_digit = unit.bytes == 1 ? 0.0 : 0.5 * width * std::pow(10.0, -decimals);
    return Size{true, {Bytes::nearest(number * width), Bytes::nearest(half_digit)}};
  }
  return std::nullopt;
}

std::size_t find_words(std::string_view text, std::string_view words, std::size_t from) {
  const char first = lower(words.front());
  for (std::size_t at = from; at < text.size(); ++at) {
    if (lower(text[at]) == first && TextScanner(text, at).take(words)) return at;
  }
  return std::string_view::npos;
}

}  // namespace zeroplan::evidence
