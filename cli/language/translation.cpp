#include "cli/language/translation.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/embedded.hpp"
#include "base/json.hpp"

namespace zeroplan::cli {
namespace {

constexpr std::string_view kChinese = "configs/messages/zh.json";
constexpr std::string_view kPageGroup = "page";

// Both name the same slots.
bool same_slots(const MessageFormat& english, const MessageFormat& other) {
  const auto numbers = [](const MessageFormat& format) {
    std::vector<std::size_t> found;
    for (const MessageFormat::Slot& slot : format.slots()) found.push_back(slot.number);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  };
  return numbers(english) == numbers(other);
}

// `key` with the arguments that are `joined` as parts of it.
Phrase with_clauses(std::string_view key,
                    std::span<const Phrase> arguments,
                    const std::vector<bool>& joined) {
  const MessageFormat format = MessageFormat::of_key(key);
  Phrase whole = format.pieces().front().c_str();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (joined[i]) {
      whole.append(arguments[i]);
    } else {
      whole += arguments[i];
    }
    whole += format.pieces()[i + 1].c_str();
  }
  return whole;
}

// How much of a key its first line takes, and how many slots that has.
struct Line {
  std::size_t length = 0;
  std::size_t slots = 0;
};

// A line ends before '\n' of the key, and behind a slot whose argument ends in one.
Line first_line(std::string_view key, std::span<const Phrase> arguments) {
  Line line;
  for (const char c : key) {
    if (c == '\n') break;
    ++line.length;
    if (c != Phrase::kSlot) continue;
    const Phrase& argument = arguments[line.slots++];
    if (argument.english().ends_with('\n')) break;
  }
  return line;
}

}  // namespace

Catalogue::Catalogue(std::string_view document, const std::string& file) {
  const JsonDocument parsed = parse_json(document, file);
  std::vector<Diagnostic> problems = duplicate_key_problems(parsed);
  const Json* groups = parsed.root.find("messages");
  if (groups == nullptr) problems.push_back({file, "/messages", "an object", "no such key", ""});
  const Json none;
  for (const auto& [group, members] : (groups == nullptr ? none : *groups).members()) {
    for (const auto& [english, other] : members.members()) {
      const std::string pointer =
          "/messages/" + pointer_token(group) + "/" + pointer_token(english);
      if (!other.is_string() || other.as_string().empty()) {
        problems.push_back({file, pointer, "a translation", described(other), ""});
        continue;
      }
      Message message{MessageFormat(english), MessageFormat(other.as_string())};
      const bool of_the_page = group == kPageGroup;
      if (!same_slots(message.english, message.other)) {
        problems.push_back({file, pointer, "the same slots", described(other), ""});
      } else if (of_the_page) {
        continue;  // page_texts
      } else {
        // A value may hold braces that stand for nothing: "{} in COMMAND is where the number
        // stands".
        sentences_.emplace(english, other.as_string());
        if (!message.english.slots().empty()) messages_.push_back(std::move(message));
      }
    }
  }
  if (!problems.empty()) throw InputError(problems);
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    by_key_.emplace(messages_[i].english.key(), i);
  }
}

const Catalogue::Message* Catalogue::find(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &messages_[found->second];
}

Json page_texts(Language language) {
  if (language == Language::en) return Json::object();
  const JsonDocument document = parse_json(embedded_file(kChinese), std::string(kChinese));
  return *document.root.find("messages")->find(kPageGroup);
}

Translation::Translation(Language language) {
  if (language == Language::en) return;
  static const Catalogue chinese(embedded_file(kChinese), std::string(kChinese));
  catalogue_ = &chinese;
}

std::string Translation::text(const Phrase& phrase) const {
  if (catalogue_ == nullptr) return phrase.english();
  if (phrase.is_value()) return line(phrase.english(), {});
  std::string result;
  std::string_view key = phrase.key();
  std::span<const Phrase> arguments = phrase.arguments();
  while (true) {
    const Line first = first_line(key, arguments);
    result += line(key.substr(0, first.length), arguments.first(first.slots));
    key.remove_prefix(first.length);
    arguments = arguments.subspan(first.slots);
    if (key.empty()) return result;
    if (key.front() != '\n') continue;
    result += '\n';
    key.remove_prefix(1);
  }
}

std::string Translation::line(std::string_view key, std::span<const Phrase> arguments) const {
  std::size_t begin = std::min(key.find_first_not_of(' '), key.size());
  if (key.substr(begin).starts_with("- ")) begin += 2;
  const std::string indent(key.substr(0, begin));
  key.remove_prefix(begin);
  if (const auto known = known_line(key, arguments)) return indent + *known;
  // A clause in a slot may belong to the row: "{}, {} faster" as "{}, 3 % faster".
  std::vector<std::size_t> clauses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].empty() || !arguments[i].is_value()) clauses.push_back(i);
  }
  constexpr std::size_t kMost = 6;
  const std::size_t ways = std::size_t{1} << std::min(clauses.size(), kMost);
  for (std::size_t way = 1; way < ways; ++way) {
    std::vector<bool> joined(arguments.size(), false);
    for (std::size_t i = 0; i < std::min(clauses.size(), kMost); ++i) {
      joined[clauses[i]] = (way >> i & 1) != 0;
    }
    const Phrase whole = with_clauses(key, arguments, joined);
    if (const auto known = known_line(whole.key(), whole.arguments())) return indent + *known;
  }
  const MessageFormat format = MessageFormat::of_key(key);
  return indent + filled({format, format}, arguments);
}

// A line that the catalogue has as it is.
std::optional<std::string> Translation::known_line(std::string_view key,
                                                   std::span<const Phrase> arguments) const {
  if (arguments.empty()) {
    const auto sentence = catalogue_->sentences().find(key);
    if (sentence == catalogue_->sentences().end()) return std::nullopt;
    return sentence->second;
  }
  const Catalogue::Message* const message = catalogue_->find(key);
  if (message == nullptr) return std::nullopt;
  return filled(*message, arguments);
}

// One argument for each slot, in the order of the English.
std::string Translation::filled(const Catalogue::Message& message,
                                std::span<const Phrase> arguments) const {
  std::vector<std::string> said(message.english.arguments());
  std::size_t next = 0;
  for (const MessageFormat::Slot& slot : message.english.slots()) {
    const Phrase& argument = arguments[next++];
    said[slot.number] = slot.is_name ? argument.english() : text(argument);
  }
  return message.other.filled(said);
}

std::string Translation::filled(std::string_view format,
                                const std::vector<Phrase>& arguments) const {
  const MessageFormat english(format);
  std::vector<Phrase> in_order;
  for (const MessageFormat::Slot& slot : english.slots()) {
    ZP_CHECK(slot.number < arguments.size(), "a message lacks an argument");
    in_order.push_back(arguments[slot.number]);
  }
  if (catalogue_ == nullptr) {
    std::vector<std::string> texts(arguments.begin(), arguments.end());
    return english.filled(texts);
  }
  if (in_order.empty()) return text(Phrase(std::string(format).c_str()));
  const Catalogue::Message* const message = catalogue_->find(english.key());
  return filled(message != nullptr ? *message : Catalogue::Message{english, english}, in_order);
}

}  // namespace zeroplan::cli
