#include "cli/language/message.hpp"

#include <algorithm>
#include <cctype>

#include "base/check.hpp"
#include "base/phrase.hpp"

namespace zeroplan::cli {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_name_sign(char c) { return c == '=' || c == 'w'; }

// The length of the slot that `text` begins with: {}, or one sign or digit in braces; 0: none.
std::size_t slot_length(std::string_view text) {
  if (text.starts_with("{}")) return 2;
  const bool one = text.size() >= 3 && text[0] == '{' && text[2] == '}';
  return one && (is_digit(text[1]) || text[1] == '#' || is_name_sign(text[1])) ? 3 : 0;
}

// Whether a Chinese character (U+4000 to U+9FFF, three bytes) stands at the end, at the beginning.
bool is_wide_lead(char c) { return c >= '\xe4' && c <= '\xe9'; }
bool ends_wide(std::string_view text) {
  return text.size() >= 3 && is_wide_lead(text[text.size() - 3]);
}
bool begins_wide(std::string_view text) { return !text.empty() && is_wide_lead(text[0]); }
bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

void join(std::string& text, std::string_view next) {
  if (text.empty() || next.empty()) {
    text += next;
    return;
  }
  const bool space_behind = text.back() == ' ' && ends_wide({text.data(), text.size() - 1});
  const bool space_before = next.front() == ' ' && begins_wide(next.substr(1));
  if (space_behind && begins_wide(next)) text.pop_back();
  if (space_before && ends_wide(text)) next.remove_prefix(1);
  const bool meet =
      (ends_wide(text) && is_letter(next.front())) || (is_letter(text.back()) && begins_wide(next));
  text += (meet ? " " : "") + std::string(next);
}

}  // namespace

MessageFormat::MessageFormat(std::string_view text) : pieces_(1) {
  std::size_t next = 0;
  while (!text.empty()) {
    const std::size_t length = slot_length(text);
    if (length == 0) {
      pieces_.back() += text[0];
      text.remove_prefix(1);
      continue;
    }
    Slot slot;
    slot.is_name = length == 3 && is_name_sign(text[1]);
    const bool numbered = length == 3 && is_digit(text[1]);
    slot.number = numbered ? static_cast<std::size_t>(text[1] - '0') : next++;
    slots_.push_back(slot);
    pieces_.emplace_back();
    text.remove_prefix(length);
  }
}

MessageFormat MessageFormat::of_key(std::string_view key) {
  MessageFormat format("");
  while (true) {
    const std::size_t slot = key.find(Phrase::kSlot);
    format.pieces_.back() = key.substr(0, slot);
    if (slot == std::string_view::npos) return format;
    format.slots_.push_back({format.slots_.size()});
    format.pieces_.emplace_back();
    key.remove_prefix(slot + 1);
  }
}

std::size_t MessageFormat::arguments() const {
  std::size_t count = 0;
  for (const Slot& slot : slots_) count = std::max(count, slot.number + 1);
  return count;
}

std::string MessageFormat::key() const {
  std::string key = pieces_.front();
  for (std::size_t i = 1; i < pieces_.size(); ++i) key += Phrase::kSlot + pieces_[i];
  return key;
}

std::string MessageFormat::filled(const std::vector<std::string>& arguments) const {
  std::string text = pieces_.front();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    ZP_CHECK(slots_[i].number < arguments.size(), "a message lacks an argument");
    join(text, arguments[slots_[i].number]);
    join(text, pieces_[i + 1]);
  }
  return text;
}

}  // namespace zeroplan::cli
