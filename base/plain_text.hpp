// What of a text from a user's file may reach a terminal, and what a name may be made of.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zeroplan {

// One character of UTF-8 at the front of a text.
struct Utf8Character {
  std::size_t length = 0;  // in bytes; 0: the text begins with none
  char32_t code = 0;
};

// Precondition: not empty.
Utf8Character first_character(std::string_view text);

// Whether the text ends before its only character does, so that more bytes may complete it.
bool is_cut_character(std::string_view text);

// Whether a terminal or an editor acts on the character and does not show it: control characters
// (U+0000 to U+001F, U+007F to U+009F), marks that turn the direction of writing (CVE-2021-42574),
// and Unicode's line and paragraph separators.
bool is_steering(char32_t code);

// The character in ASCII: \x1b below U+0080, \u202e from there on.
std::string escaped(char32_t code);
// A byte that is no UTF-8: \xff.
std::string escaped_byte(char byte);

// A JSON document with the steering characters of its strings as \u001b, so that a terminal may
// show it. What JSON itself lets stand nowhere (below U+0020) must be escaped already.
std::string steering_escaped(std::string json);

// Whether there is an ASCII control character, a line break too. Names and paths of documents have
// none: what is written for them holds one in a line.
bool has_control_character(std::string_view text);

}  // namespace zeroplan
