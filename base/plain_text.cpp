#include "base/plain_text.hpp"

#include <algorithm>
#include <cstdint>

namespace zeroplan {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Bytes of the character that begins with `lead`; 0 where none does.
std::size_t length_by(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

std::string hex(std::uint32_t value, int digits) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += kHex[(value >> shift) & 15];
  return text;
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = length_by(lead);
  if (length == 0 || length > text.size()) return {};
  char32_t code = length == 1 ? lead : lead & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (!continues_character(text[i])) return {};
    code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3fU);
  }
  // Longer than it must be, half of a pair of UTF-16, beyond Unicode.
  constexpr char32_t kFirst[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool none = code < kFirst[length] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff;
  return none ? Utf8Character{} : Utf8Character{length, code};
}

bool is_cut_character(std::string_view text) {
  if (text.empty() || text.size() >= length_by(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin() + 1, text.end(), continues_character);
}

bool is_steering(char32_t code) {
  const auto within = [code](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  return code < 0x20 || within(0x7f, 0x9f) || code == 0x61c || within(0x200e, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2066, 0x2069);
}

std::string escaped(char32_t code) {
  const auto value = static_cast<std::uint32_t>(code);
  return value < 0x80 ? "\\x" + hex(value, 2) : "\\u" + hex(value, 4);
}

std::string escaped_byte(char byte) { return "\\x" + hex(static_cast<unsigned char>(byte), 2); }

std::string steering_escaped(std::string json) {
  constexpr std::string_view kLeads = "\x7f\xc2\xd8\xe2";  // of the characters from U+007F on
  std::size_t at = json.find_first_of(kLeads);
  if (at == std::string::npos) return json;
  std::string result;
  std::size_t done = 0;
  for (; at != std::string::npos; at = json.find_first_of(kLeads, at + 1)) {
    const Utf8Character character = first_character(std::string_view(json).substr(at));
    if (character.length == 0 || !is_steering(character.code)) continue;
    result.append(json, done, at - done);
    result += "\\u" + hex(static_cast<std::uint32_t>(character.code), 4);
    done = at + character.length;
  }
  return result.append(json, done);
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

}  // namespace zeroplan
