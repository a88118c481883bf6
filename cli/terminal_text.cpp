#include "cli/terminal_text.hpp"

#include <algorithm>
#include <string_view>

#include "base/plain_text.hpp"

namespace zeroplan::cli {
namespace {

// Printable ASCII, line breaks, tabs: nearly everything that is printed.
bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= 0x20 && byte < 0x7f) || c == '\n' || c == '\t';
}

}  // namespace

TerminalText::TerminalText(std::ostream& stream) : stream_(stream), target_(stream.rdbuf(this)) {}

TerminalText::~TerminalText() {
  for (const char byte : cut_) put(escaped_byte(byte));
  // rdbuf() would forget that writing failed.
  const std::ios::iostate state = stream_.rdstate();
  stream_.rdbuf(target_);
  stream_.setstate(state);
}

bool TerminalText::put(std::string_view text) {
  const auto size = static_cast<std::streamsize>(text.size());
  return target_->sputn(text.data(), size) == size;
}

bool TerminalText::write(std::string_view text) {
  const std::string joined = cut_.empty() ? std::string() : cut_ + std::string(text);
  if (!cut_.empty()) text = joined;
  cut_.clear();
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(
        std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    if (plain > 0) {
      if (!put(text.substr(0, plain))) return false;
      text.remove_prefix(plain);
      continue;
    }
    if (is_cut_character(text)) {
      cut_ = text;
      return true;
    }
    const Utf8Character character = first_character(text);
    const bool safe = character.length > 0 && !is_steering(character.code);
    const bool good = safe                    ? put(text.substr(0, character.length))
                      : character.length == 0 ? put(escaped_byte(text[0]))
                                              : put(zeroplan::escaped(character.code));
    if (!good) return false;
    text.remove_prefix(std::max<std::size_t>(character.length, 1));
  }
  return true;
}

std::streamsize TerminalText::xsputn(const char* text, std::streamsize size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return write({text, static_cast<std::size_t>(size)}) ? size : 0;
}

TerminalText::int_type TerminalText::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char byte = traits_type::to_char_type(c);
  const std::lock_guard<std::mutex> lock(mutex_);
  return write({&byte, 1}) ? c : traits_type::eof();
}

int TerminalText::sync() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return target_->pubsync();
}

}  // namespace zeroplan::cli
