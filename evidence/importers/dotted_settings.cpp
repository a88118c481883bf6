#include "evidence/importers/dotted_settings.hpp"

#include "evidence/text_scanner.hpp"

namespace zeroplan::evidence {
namespace {

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

}  // namespace

std::optional<std::int64_t> DottedSetting::integer() const {
  TextScanner scanner(value);
  const std::optional<std::int64_t> number = scanner.integer();
  return number && scanner.at_end() ? number : std::nullopt;
}

std::optional<DottedSetting> dotted_setting(std::string_view line) {
  const std::size_t dots = line.find(" ..");
  if (dots == std::string_view::npos) return std::nullopt;
  std::size_t begin = dots;
  while (begin > 0 && is_name(line[begin - 1])) --begin;
  const std::size_t end = line.find_first_not_of('.', dots + 1);
  if (begin == dots || end == std::string_view::npos || line[end] != ' ') return std::nullopt;
  return DottedSetting{line.substr(begin, dots - begin), trimmed(line.substr(end))};
}

}  // namespace zeroplan::evidence
