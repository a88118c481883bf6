#include "base/phrase_list.hpp"

#include "base/check.hpp"

namespace zeroplan {

Phrase phrase_list(const std::vector<Phrase>& parts, const char* separator) {
  if (parts.empty()) return {};
  Phrase list = parts.back();
  for (std::size_t i = parts.size() - 1; i-- > 0;) {
    ZP_CHECK(!parts[i].empty(), "a part of a list is empty");
    Phrase longer;
    longer += parts[i];
    longer += separator;
    longer += list;
    list = std::move(longer);
  }
  return list;
}

Phrase phrase_list(std::span<const std::string> names, const char* separator) {
  return phrase_list(std::vector<Phrase>(names.begin(), names.end()), separator);
}

Phrase phrase_list(std::span<const std::string_view> names, const char* separator) {
  return phrase_list(std::vector<Phrase>(names.begin(), names.end()), separator);
}

}  // namespace zeroplan
