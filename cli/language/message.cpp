#include "cli/language/message.hpp"

#include <algorithm>
#include <cctype>

#include "model/check.hpp"
#include "model/phrase.hpp"

namespace zeroplan {
namespace {

std::optional<MessageFormat::Take> take_of(char sign) {
  if (sign == '#') return MessageFormat::Take::quantity;
  if (sign == '=') return MessageFormat::Take::name;
  if (sign == 'w') return MessageFormat::Take::word;
  return std::nullopt;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// The length of the slot that `text` begins with: {}, or one sign or digit in braces; 0: none.
std::size_t slot_length(std::string_view text) {
  if (text.starts_with("{}")) return 2;
  const bool one = text.size() >= 3 && text[0] == '{' && text[2] == '}';
  return one && (is_digit(text[1]) || take_of(text[1])) ? 3 : 0;
}

// "31.4 GiB", "1,024", "+2 %", and what stands for no number.
bool is_quantity(std::string_view text) {
  if (text == "-" || text == "no limit") return true;
  const std::size_t begin = text.find_first_not_of("+-");
  if (begin > 1 || !is_digit(text[begin])) return false;  // npos is more than 1
  const std::size_t unit = text.find(' ');
  const std::string_view number = text.substr(begin, unit - begin);
  const bool plain = number.find_first_not_of("0123456789.,e+-") == std::string_view::npos;
  const bool one_unit = unit == std::string_view::npos ||
                        text.find_first_of(" ,;:()", unit + 1) == std::string_view::npos;
  return plain && is_digit(number.back()) && one_unit;
}

bool fits(MessageFormat::Take take, std::string_view text) {
  if (take == MessageFormat::Take::quantity) return is_quantity(text);
  return take != MessageFormat::Take::word || text.find(' ') == std::string_view::npos;
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
    if (length == 3) slot.take = take_of(text[1]).value_or(Take::text);
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
    format.slots_.push_back({format.slots_.size(), Take::text});
    format.pieces_.emplace_back();
    key.remove_prefix(slot + 1);
  }
}

std::size_t MessageFormat::arguments() const {
  std::size_t count = 0;
  for (const Slot& slot : slots_) count = std::max(count, slot.number + 1);
  return count;
}

std::size_t MessageFormat::letters() const {
  std::size_t count = 0;
  for (const std::string& piece : pieces_) count += piece.size();
  return count;
}

bool MessageFormat::has_letters() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const std::string& piece) {
    return std::any_of(piece.begin(), piece.end(), [](unsigned char c) { return std::isalpha(c); });
  });
}

std::string MessageFormat::key() const {
  std::string key = pieces_.front();
  for (std::size_t i = 1; i < pieces_.size(); ++i) key += Phrase::kSlot + pieces_[i];
  return key;
}

std::optional<std::vector<std::string>> MessageFormat::match(std::string_view text) const {
  if (!text.starts_with(pieces_.front()) || !text.ends_with(pieces_.back())) return std::nullopt;
  std::vector<std::string> found(arguments());
  text.remove_prefix(pieces_.front().size());
  if (slots_.empty() ? text.empty() : match_from(0, text, found)) return found;
  return std::nullopt;
}

bool MessageFormat::match_from(std::size_t slot,
                               std::string_view text,
                               std::vector<std::string>& arguments) const {
  const std::string& behind = pieces_[slot + 1];
  std::string& argument = arguments[slots_[slot].number];
  const std::string before = argument;
  const auto take = [&](std::size_t end) {
    const std::string_view here = text.substr(0, end);
    if (!fits(slots_[slot].take, here) || (!before.empty() && before != here)) return false;
    argument = here;
    return true;
  };
  if (slot + 1 == slots_.size()) {
    return text.size() > behind.size() && text.ends_with(behind) &&
           take(text.size() - behind.size());
  }
  for (std::size_t end = text.find(behind, 1); end < text.size();
       end = text.find(behind, end + 1)) {
    if (take(end) && match_from(slot + 1, text.substr(end + behind.size()), arguments)) return true;
    argument = before;
  }
  return false;
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

}  // namespace zeroplan
