#include "model/software.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>

namespace zeroplan {
namespace {

struct Described {
  DeepSpeedVersion version;
  std::string_view name;
  Version first;    // the first release that gets this description
  Version behaves;  // the last release of the series that was read for it
};

constexpr std::array kDescribed = {
    Described{DeepSpeedVersion::v0_12, "0.12", {0, 12, 0}, {0, 12, 6}},
    Described{DeepSpeedVersion::v0_14, "0.14", {0, 14, 0}, {0, 14, 5}},
    Described{DeepSpeedVersion::v0_16, "0.16", {0, 16, 0}, {0, 16, 9}},
    Described{DeepSpeedVersion::v0_17, "0.17", {0, 17, 0}, {0, 17, 6}},
    Described{DeepSpeedVersion::v0_18, "0.18", {0, 18, 0}, {0, 18, 9}},
    Described{DeepSpeedVersion::v0_19, "0.19", {0, 19, 0}, {0, 19, 6}},
};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Reads the number at the front of `text` and removes it; at most five digits.
std::optional<int> take_number(std::string_view& text) {
  constexpr std::size_t kMostDigits = 5;
  std::size_t digits = 0;
  int value = 0;
  while (digits < text.size() && is_digit(text[digits])) {
    if (digits == kMostDigits) return std::nullopt;
    value = value * 10 + (text[digits++] - '0');
  }
  if (digits == 0) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

std::string_view without_spaces(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// Removes a word and the number behind it, each with ".", "-" or "_" before it or nothing: "rc1",
// ".dev20250101", "-post1", "a0", "b". False where the text does not go on so.
bool take_word(std::string_view& text, std::initializer_list<std::string_view> words) {
  static constexpr std::string_view kSeparators = ".-_";
  const auto skip_separator = [](std::string_view& rest) {
    const bool any = !rest.empty() && kSeparators.find(rest.front()) != std::string_view::npos;
    if (any) rest.remove_prefix(1);
  };
  std::string_view rest = text;
  skip_separator(rest);
  for (const std::string_view word : words) {
    const bool same = rest.size() >= word.size() &&
                      std::equal(word.begin(), word.end(), rest.begin(), [](char a, char b) {
                        return a == std::tolower(static_cast<unsigned char>(b));
                      });
    if (!same) continue;
    rest.remove_prefix(word.size());
    std::string_view number = rest;
    skip_separator(number);
    const std::size_t digits = std::min(number.find_first_not_of("0123456789"), number.size());
    if (digits > 0) {
      number.remove_prefix(digits);
      rest = number;
    }
    text = rest;
    return true;
  }
  return false;
}

// What pip lets stand behind a release (PEP 440): a pre-release, a post-release, a development
// release, a local part, in this order: "a0+git1a2b", "rc1", ".post1", ".dev20250101+cu126".
bool is_suffix(std::string_view text) {
  take_word(text, {"alpha", "beta", "preview", "pre", "rc", "a", "b", "c"});
  take_word(text, {"post", "rev", "r"});
  take_word(text, {"dev"});
  if (text.empty()) return true;
  if (text.front() != '+') return false;
  bool begins = true;  // a part between separators, which is not empty
  for (const char c : text.substr(1)) {
    const bool separator = c == '.' || c == '-' || c == '_';
    if (separator && begins) return false;
    if (!separator && !std::isalnum(static_cast<unsigned char>(c))) return false;
    begins = separator;
  }
  return !begins;
}

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  text = without_spaces(text);
  if (!text.empty() && (text.front() == 'v' || text.front() == 'V')) text.remove_prefix(1);
  std::array<int, 3> parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) {
      if (text.size() < 2 || text.front() != '.' || !is_digit(text[1])) break;
      text.remove_prefix(1);
    }
    const std::optional<int> number = take_number(text);
    if (!number) return std::nullopt;
    parts[i] = *number;
  }
  // More numbers and a suffix do not change which release it is near.
  while (text.size() >= 2 && text.front() == '.' && is_digit(text[1])) {
    text.remove_prefix(1);
    if (!take_number(text)) return std::nullopt;
  }
  if (!is_suffix(text)) return std::nullopt;
  return Version{parts[0], parts[1], parts[2]};
}

std::string to_string(const Version& version) {
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

std::string_view name(DeepSpeedVersion version) {
  return kDescribed[static_cast<std::size_t>(version)].name;
}

DeepSpeedChoice nearest_described(const Version& release) {
  const Described* nearest = &kDescribed.front();
  for (const Described& described : kDescribed) {
    if (described.first <= release) nearest = &described;
  }
  const bool same_series =
      release.major == nearest->first.major && release.minor == nearest->first.minor;
  if (same_series && release <= nearest->behaves) return {nearest->version, ""};
  return {nearest->version,
          "DeepSpeed " + to_string(release) + " is predicted as " + to_string(nearest->behaves)};
}

}  // namespace zeroplan
