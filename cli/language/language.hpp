// The languages the commands speak, and which one was asked for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace zeroplan::cli {

enum class Language { en, zh };

// "en" or "zh".
std::optional<Language> find_language(std::string_view name);

// What LC_ALL, LC_MESSAGES and LANG ask for, the first that is set deciding; English where that is
// no language of these.
Language language_of_locale();

// The language of a command line that may be wrong otherwise: --lang where it says a known one,
// else the locale's. For messages about that very command line.
Language language_of_words(const std::vector<std::string>& words);

}  // namespace zeroplan::cli
