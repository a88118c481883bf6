#include "cli/language/language.hpp"

#include <cstdlib>

namespace zeroplan::cli {

std::optional<Language> find_language(std::string_view name) {
  if (name == "en") return Language::en;
  if (name == "zh") return Language::zh;
  return std::nullopt;
}

Language language_of_locale() {
  for (const char* variable : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    return std::string_view(value).starts_with("zh") ? Language::zh : Language::en;
  }
  return Language::en;
}

Language language_of_words(const std::vector<std::string>& words) {
  constexpr std::string_view kFlag = "--lang";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    std::optional<Language> said;
    if (word == kFlag && i + 1 < words.size()) said = find_language(words[i + 1]);
    if (word.starts_with("--lang=")) said = find_language(word.substr(kFlag.size() + 1));
    if (said) return *said;
  }
  return language_of_locale();
}

}  // namespace zeroplan::cli
