#include "cli/language/translation.hpp"

#include <algorithm>
#include <cctype>

#include "model/diagnostic.hpp"
#include "model/embedded.hpp"
#include "model/json.hpp"

namespace zeroplan {
namespace {

constexpr std::string_view kChinese = "configs/messages/zh.json";
constexpr std::string_view kPageGroup = "page";

// A whole text in quotes is what a user wrote.
bool is_quoted(std::string_view text) {
  return text.size() >= 2 && text.front() == '"' && text.find('"', 1) == text.size() - 1;
}

// Words of small letters alone: what is left of a sentence, not an identifier or a unit.
int english_words(std::string_view text) {
  int count = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!word.empty() && std::ispunct(static_cast<unsigned char>(word.back())) != 0) {
      word.remove_suffix(1);
    }
    const bool small =
        std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::islower(c) != 0; });
    if (word.size() > 1 && small) ++count;
  }
  return count;
}

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
        problems.push_back({file, pointer, "a translation", other.describe(), ""});
        continue;
      }
      Message message{MessageFormat(english), MessageFormat(other.as_string())};
      const bool of_the_page = group == kPageGroup;
      if (!same_slots(message.english, message.other)) {
        problems.push_back({file, pointer, "the same slots", other.describe(), ""});
      } else if (of_the_page) {
        continue;  // page_texts
      } else if (message.english.slots().empty()) {
        sentences_.emplace(english, other.as_string());
      } else {
        messages_.push_back(std::move(message));
      }
    }
  }
  if (!problems.empty()) throw InputError(problems);
  std::stable_sort(messages_.begin(), messages_.end(), [](const Message& a, const Message& b) {
    return a.english.letters() > b.english.letters();
  });
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

std::string Translation::text(std::string_view english) const {
  if (catalogue_ == nullptr) return std::string(english);
  std::string result;
  while (true) {
    const std::size_t end = english.find('\n');
    result += line(english.substr(0, end));
    if (end == std::string_view::npos) return result;
    result += '\n';
    english.remove_prefix(end + 1);
  }
}

std::string Translation::line(std::string_view english) const {
  std::size_t begin = english.find_first_not_of(' ');
  if (begin == std::string_view::npos) return std::string(english);
  if (english.substr(begin).starts_with("- ")) begin += 2;
  Known known;
  return std::string(english.substr(0, begin)) + phrase(english.substr(begin), known).text;
}

std::string Translation::filled(std::string_view format,
                                const std::vector<std::string>& arguments) const {
  const MessageFormat english(format);
  if (catalogue_ == nullptr) return english.filled(arguments);
  Known known;
  if (english.slots().empty()) return phrase(format, known).text;
  for (const Catalogue::Message& message : catalogue_->messages()) {
    if (message.english.pieces() != english.pieces()) continue;
    return filled(message, arguments, known).text;
  }
  return filled({english, english}, arguments, known).text;
}

Translation::Said Translation::phrase(std::string_view english, Known& known) const {
  if (is_quoted(english)) return {std::string(english), 0};
  const auto sentence = catalogue_->sentences().find(english);
  if (sentence != catalogue_->sentences().end()) return {sentence->second, 0};
  const auto found = known.find(english);
  if (found != known.end()) return found->second;
  Said best{std::string(english), english_words(english) + 1};
  for (const Catalogue::Message& message : catalogue_->messages()) {
    auto arguments = message.english.match(english);
    if (!arguments) continue;
    Said said = filled(message, std::move(*arguments), known);
    if (said.english < best.english) best = std::move(said);
    if (best.english == 0) break;
  }
  if (best.text == english) best.english = english_words(english);
  return known.emplace(std::string(english), std::move(best)).first->second;
}

Translation::Said Translation::filled(const Catalogue::Message& message,
                                      std::vector<std::string> arguments,
                                      Known& known) const {
  int left = 0;
  std::vector<bool> done(arguments.size(), false);
  for (const MessageFormat::Slot& slot : message.english.slots()) {
    if (slot.is_name() || done[slot.number]) continue;
    Said said = phrase(arguments[slot.number], known);
    arguments[slot.number] = std::move(said.text);
    left += said.english;
    done[slot.number] = true;
  }
  return {message.other.filled(arguments), left};
}

}  // namespace zeroplan
