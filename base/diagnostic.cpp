#include "base/diagnostic.hpp"

#include <algorithm>
#include <cctype>

#include "base/check.hpp"
#include "base/plain_text.hpp"
#include "base/written_names.hpp"

namespace zeroplan {
namespace {

// So that "stage3-Prefetch" is near "stage3_prefetch".
constexpr std::string_view kWordSeparators = " -_.";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Damerau-Levenshtein distance (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = previous;
    previous = row;
  }
  return previous[b.size()];
}

// The parts of a name in alphabetical order, so that comm_overlap is near overlap_comm.
std::string sorted_parts(std::string_view word) {
  std::vector<std::string> parts(1);
  for (const char c : word) {
    if (c == '_' || c == '-' || c == ' ') {
      parts.emplace_back();
    } else {
      parts.back().push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
    }
  }
  std::sort(parts.begin(), parts.end());
  std::string sorted;
  for (const std::string& part : parts) sorted += part + " ";
  return sorted;
}

}  // namespace

Phrase to_string(const Diagnostic& diagnostic) {
  // Words, where the other files are names.
  constexpr const char* kCommandLine = "command line";
  Phrase text = "error: ";
  if (diagnostic.file == kCommandLine) {
    text += kCommandLine;
  } else if (diagnostic.file.starts_with("command line ")) {  // the document of a flag
    text += "command line ";
    text += Phrase(printable(diagnostic.file.substr(std::string_view("command line ").size())));
  } else {
    text += diagnostic.file.empty() ? "\"\"" : printable(diagnostic.file);
  }
  text += ": ";
  if (!diagnostic.pointer.empty()) text += Phrase(printable(diagnostic.pointer));
  if (!diagnostic.pointer.empty()) text += ": ";
  text += "expected ";
  text += printable_values(diagnostic.expected);
  text += ", got ";
  text += printable_values(diagnostic.got);
  if (diagnostic.hint.empty()) return text;
  return text + "\nhint: " + printable_values(diagnostic.hint);
}

InputError::InputError(Diagnostic diagnostic)
    : InputError(std::vector<Diagnostic>{std::move(diagnostic)}) {}

InputError::InputError(std::vector<Diagnostic> diagnostics) : diagnostics_(std::move(diagnostics)) {
  ZP_CHECK(!diagnostics_.empty(), "an InputError without a diagnostic");
  constexpr std::size_t kMostShown = 20;
  for (const Diagnostic& diagnostic : diagnostics_) {
    if (&diagnostic - diagnostics_.data() == kMostShown) {
      text_ += phrase("\n... and {} more errors", diagnostics_.size() - kMostShown);
      break;
    }
    if (!text_.empty()) text_ += "\n";
    text_ += to_string(diagnostic);
  }
}

std::vector<std::string> nearest_names(std::string_view word,
                                       std::span<const std::string_view> candidates,
                                       std::size_t limit) {
  constexpr std::size_t kLongestWord = 128;  // longer input is no misspelled name
  if (word.size() > kLongestWord) return {};
  const std::string key = folded(word, kWordSeparators);
  std::vector<std::pair<std::size_t, std::string>> ranked;
  for (const std::string_view candidate : candidates) {
    const bool permuted = sorted_parts(word) == sorted_parts(candidate);
    const std::size_t distance =
        permuted ? 0 : edit_distance(key, folded(candidate, kWordSeparators));
    if (distance <= std::max<std::size_t>(1, key.size() / 3)) {
      ranked.emplace_back(distance, std::string(candidate));
    }
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : ranked) {
    if (names.size() == limit) break;
    if (std::find(names.begin(), names.end(), candidate) == names.end()) names.push_back(candidate);
  }
  return names;
}

bool is_misspelling_of(std::string_view name, std::string_view word) {
  constexpr std::size_t kTellingPrefix = 8;
  const std::string a = folded(name, kWordSeparators);
  const std::string b = folded(word, kWordSeparators);
  if (sorted_parts(name) == sorted_parts(word)) return true;
  if (std::min(a.size(), b.size()) >= kTellingPrefix && (a.starts_with(b) || b.starts_with(a))) {
    return true;
  }
  return edit_distance(a, b) <= std::max<std::size_t>(1, b.size() / 6);
}

Phrase did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::vector<std::string> names = nearest_names(word, candidates);
  if (names.empty()) return "";
  Phrase text = "did you mean ";
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += Phrase(names[i]);
  }
  return text + "?";
}

namespace {

// Nearly all texts are printable ASCII alone, and planning writes thousands of them.
bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

std::string printable(std::string_view text) {
  if (is_plain(text)) return std::string(text);
  std::string result;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const std::size_t length = std::max<std::size_t>(character.length, 1);
    if (character.length == 0) {
      result += escaped_byte(text[0]);
    } else if (is_steering(character.code)) {
      result += escaped(character.code);
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return result;
}

Phrase printable_values(const Phrase& phrase) {
  if (is_plain(phrase.english())) return phrase;
  return phrase.with_values([](std::string_view value) { return printable(value); });
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::size_t end = std::min(text.size(), kLongest);
  while (end > 0 && end < text.size() && is_continuation(text[end])) --end;
  std::string escaped;
  for (const char c : text.substr(0, end)) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return "\"" + printable(escaped) + (end < text.size() ? "...\"" : "\"");
}

}  // namespace zeroplan
