#include "base/quoting.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/plain_text.hpp"

namespace zeroplan {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all_of(std::string_view text, std::string_view besides) {
  return std::all_of(text.begin(), text.end(), [besides](char c) {
    return is_letter(c) || is_digit(c) || besides.find(c) != std::string_view::npos;
  });
}

// Words that YAML 1.1 takes for null and booleans, in small letters.
bool is_yaml_word(std::string_view text) {
  constexpr std::array<std::string_view, 11> kWords = {
      "y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan"};
  return std::any_of(kWords.begin(), kWords.end(), [text](std::string_view word) {
    return std::equal(text.begin(), text.end(), word.begin(), word.end(), [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b;
    });
  });
}

// A text that begins with a letter, "_" or "/" is no number, date or indicator of YAML.
bool is_plain_yaml(std::string_view text) {
  const bool begins = !text.empty() && (is_letter(text[0]) || text[0] == '_' || text[0] == '/') &&
                      text.back() != '.';
  return begins && all_of(text, "_-./") && !is_yaml_word(text);
}

// What stands in double quotes of YAML for one character.
std::string in_yaml_quotes(char32_t code, std::string_view bytes) {
  if (code == '"' || code == '\\') return "\\" + std::string(bytes);
  const bool mark = code == 0xfeff || code == 0xfffe || code == 0xffff;  // no characters of YAML
  if (!is_steering(code) && !mark) return std::string(bytes);
  const auto value = static_cast<std::uint32_t>(code);
  return value < 0x100 ? fmt::format("\\x{:02x}", value) : fmt::format("\\u{:04x}", value);
}

}  // namespace

std::string sh_quoted(std::string_view text) {
  ZP_CHECK(text.find('\0') == std::string_view::npos, "a word of sh with a NUL");
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\"'\"'";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::string sh_word(std::string_view text) {
  // "~", "=" and "{" mean something at some places only: they are quoted everywhere.
  return !text.empty() && all_of(text, "_-./:@%+,") ? std::string(text) : sh_quoted(text);
}

std::string sh_path(std::string_view path) {
  return sh_quoted(path.starts_with('-') ? "./" + std::string(path) : std::string(path));
}

std::string yaml_string(std::string_view text) {
  if (is_plain_yaml(text)) return std::string(text);
  std::string quoted = "\"";
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    const std::size_t length = std::max<std::size_t>(character.length, 1);
    // YAML is Unicode: a byte that is none becomes the character that says so.
    quoted +=
        character.length == 0 ? "\\ufffd" : in_yaml_quotes(character.code, text.substr(0, length));
    text.remove_prefix(length);
  }
  return quoted + "\"";
}

std::string compose_string(std::string_view text) {
  std::string doubled;
  for (const char c : text) doubled += c == '$' ? "$$" : std::string(1, c);
  return yaml_string(doubled);
}

std::string markdown_text(std::string_view text) {
  constexpr std::string_view kMarkup = "\\`*[]<|~&";
  constexpr std::string_view kBlocks = "#>-+=";  // at the beginning of a line
  const std::string line = printable(text);
  std::string escaped;
  for (std::size_t i = 0; i < line.size(); ++i) {
    // An underscore within a word is none of Markdown's.
    const bool within = i > 0 && i + 1 < line.size() && line[i - 1] != ' ' && line[i + 1] != ' ';
    const bool markup = kMarkup.find(line[i]) != std::string_view::npos ||
                        (i == 0 && kBlocks.find(line[i]) != std::string_view::npos) ||
                        (line[i] == '_' && !within);
    if (markup) escaped += '\\';
    escaped += line[i];
  }
  return escaped;
}

}  // namespace zeroplan
