#include "evidence/importers/line_reader.hpp"

#include <string>

#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {
namespace {

constexpr std::string_view kBetween = ":='\"";

// Behind `key` and what stands between it and its value; nothing where the key is not there.
std::optional<TextScanner> behind(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  TextScanner scanner(line, at + key.size());
  scanner.skip_any(kBetween);
  return scanner;
}

}  // namespace

std::optional<double> number_after(std::string_view line, std::string_view key) {
  std::optional<TextScanner> scanner = behind(line, key);
  return scanner ? scanner->real() : std::nullopt;
}

std::optional<std::int64_t> count_after(std::string_view line, std::string_view key) {
  const std::optional<TextScanner> scanner = behind(line, key);
  if (!scanner) return std::nullopt;
  std::string digits;
  for (const char c : line.substr(scanner->at())) {
    if (c == ',') continue;
    if (c < '0' || c > '9') break;
    digits += c;
  }
  return TextScanner(digits).integer();
}

std::optional<std::int64_t> clock_seconds(std::string_view text) {
  std::int64_t seconds = 0;
  TextScanner scanner(text);
  int parts = 0;
  while (!scanner.at_end()) {
    const std::optional<std::int64_t> part = scanner.integer();
    constexpr std::int64_t kMost = 100'000'000;
    if (!part || *part < 0 || *part > kMost || seconds > kMost) return std::nullopt;
    seconds = seconds * 60 + *part;
    ++parts;
    if (!scanner.take(":")) break;
  }
  if (parts < 2 || parts > 3 || !scanner.at_end()) return std::nullopt;
  return seconds;
}

LogPlace with_stated_rank(std::string_view line, const LogPlace& place) {
  for (const std::string_view key : {"[Rank ", "[rank=", "RANK "}) {
    const std::size_t at = line.find(key);
    if (at == std::string_view::npos) continue;
    TextScanner scanner(line, at + key.size());
    constexpr std::int64_t kMostRank = 1'000'000;
    const std::optional<std::int64_t> rank = scanner.integer();
    if (rank && *rank >= 0 && *rank <= kMostRank) return {static_cast<int>(*rank), place.line};
  }
  return place;
}

}  // namespace zeroplan::evidence
