#include "base/json.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "base/plain_text.hpp"

namespace zeroplan {

// --- the value
// ---------------------------------------------------------------------------------------

// Not the variant's own copy: where that runs out of memory, libstdc++ 12 destroys a value that was
// never made (a variant of strings and vectors counts as one that always has a value).
Json::Json(const Json& other) : line_(other.line_), column_(other.column_) {
  std::visit(
      [this](const auto& value) {
        auto copy = value;
        value_.emplace<std::remove_cvref_t<decltype(value)>>(std::move(copy));
      },
      other.value_);
}

Json& Json::operator=(const Json& other) {
  if (this != &other) *this = Json(other);
  return *this;
}

Json Json::array(std::vector<Json> items) {
  Json value;
  value.value_ = std::move(items);
  return value;
}

Json Json::object(std::initializer_list<Member> members) {
  Json value;
  value.value_ = Members(members);
  return value;
}

bool Json::as_boolean() const {
  ZP_CHECK(is_boolean(), "not a boolean");
  return std::get<bool>(value_);
}

std::int64_t Json::as_integer() const {
  ZP_CHECK(is_integer(), "not an integer");
  return std::get<std::int64_t>(value_);
}

double Json::as_number() const {
  ZP_CHECK(is_number(), "not a number");
  return is_integer() ? static_cast<double>(as_integer()) : std::get<double>(value_);
}

const std::string& Json::as_string() const {
  ZP_CHECK(is_string(), "not a string");
  return std::get<std::string>(value_);
}

const std::vector<Json>& Json::items() const {
  static const Items kNone;
  return is_array() ? std::get<Items>(value_) : kNone;
}

const std::vector<Json::Member>& Json::members() const {
  static const Members kNone;
  return is_object() ? std::get<Members>(value_) : kNone;
}

std::vector<Json>& Json::items() {
  if (is_array()) return std::get<Items>(value_);
  static thread_local Items none;
  none.clear();
  return none;
}

std::vector<Json::Member>& Json::members() {
  if (is_object()) return std::get<Members>(value_);
  static thread_local Members none;
  none.clear();
  return none;
}

const Json* Json::find(std::string_view key) const {
  const Members& all = members();
  for (auto member = all.rbegin(); member != all.rend(); ++member) {
    if (member->first == key) return &member->second;
  }
  return nullptr;
}

Json* Json::find(std::string_view key) {
  return const_cast<Json*>(static_cast<const Json*>(this)->find(key));
}

Json& Json::operator[](std::string_view key) {
  ZP_CHECK(is_null() || is_object(), "a member of something that is no object");
  if (is_null()) value_ = Members();
  if (Json* found = find(key)) return *found;
  return members().emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json item) {
  ZP_CHECK(is_null() || is_array(), "an item for something that is no array");
  if (is_null()) value_ = Items();
  items().push_back(std::move(item));
}

bool Json::erase(std::string_view key) {
  if (!is_object()) return false;
  return std::erase_if(members(), [&](const Member& member) { return member.first == key; }) > 0;
}

void Json::set_position(int line, int column) {
  line_ = line;
  column_ = column;
}

namespace {

// find() would search all of b's members for each of a's.
bool same_members(const std::vector<Json::Member>& a, const std::vector<Json::Member>& b) {
  if (a.size() != b.size()) return false;
  std::unordered_map<std::string_view, const Json*> by_name;
  for (const auto& [key, value] : b) by_name[key] = &value;
  return std::all_of(a.begin(), a.end(), [&](const Json::Member& member) {
    const auto other = by_name.find(member.first);
    return other != by_name.end() && *other->second == member.second;
  });
}

}  // namespace

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
    return a.as_number() == b.as_number();
  }
  if (a.type() != b.type()) return false;
  return a.is_object() ? same_members(a.members(), b.members()) : a.value_ == b.value_;
}

std::string pointer_token(std::string_view key) {
  std::string token;
  for (const char c : key) {
    if (c == '~') {
      token += "~0";
    } else if (c == '/') {
      token += "~1";
    } else {
      token += c;
    }
  }
  return token;
}

// --- reading
// -----------------------------------------------------------------------------------------

namespace {

// Comments and trailing commas, replaced by spaces so that every other character keeps its place.
struct Relaxed {
  std::string text;
  bool had_comments = false;
  bool had_trailing_commas = false;
};

std::size_t end_of_string(std::string_view text, std::size_t open) {
  std::size_t i = open + 1;
  const std::size_t close = std::min(text.find('"', i), text.size());
  if (text.substr(i, close - i).find('\\') == std::string_view::npos) return close;
  while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
  return std::min(i, text.size());
}

std::size_t end_of_comment(std::string_view text, std::size_t begin) {
  if (text[begin + 1] == '/') return std::min(text.find('\n', begin), text.size());
  const std::size_t close = text.find("*/", begin + 2);
  return close == std::string_view::npos ? text.size() : close + 2;
}

Relaxed relax(std::string_view text, const JsonOptions& options) {
  Relaxed result{std::string(text)};
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t comma = kNone;  // the last comma with nothing but space behind it
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool comment =
        c == '/' && i + 1 < text.size() && (text[i + 1] == '/' || text[i + 1] == '*');
    if (comment && options.comments) {
      const std::size_t end = end_of_comment(text, i);
      for (std::size_t k = i; k < end; ++k) {
        if (text[k] != '\n') result.text[k] = ' ';
      }
      result.had_comments = true;
      i = end - 1;
    } else if (c == '"') {
      i = end_of_string(text, i);
      comma = kNone;
    } else if (c == ',') {
      comma = i;
    } else if ((c == ']' || c == '}') && comma != kNone && options.trailing_commas) {
      result.text[comma] = ' ';
      result.had_trailing_commas = true;
      comma = kNone;
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      comma = kNone;
    }
  }
  return result;
}

struct Position {
  int line = 1;
  int column = 1;
};

std::string to_pointer(const Position& at) {
  return "line " + std::to_string(at.line) + ", column " + std::to_string(at.column);
}

Position position_of(std::string_view text, std::size_t offset, int first_line) {
  offset = std::min(offset, text.size());
  const auto line =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(offset), '\n');
  const std::size_t start = text.rfind('\n', offset == 0 ? 0 : offset - 1);
  const std::size_t column =
      line == 0 || start == std::string_view::npos ? offset + 1 : offset - start;
  return {static_cast<int>(line) + first_line, static_cast<int>(column)};
}

// Walks the text for the library's parser and tells how far it has read.
class TrackingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* at, const char** read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  TrackingIterator& operator++() {
    *read_ = ++at_;
    return *this;
  }
  bool operator==(const TrackingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const TrackingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** read_;
};

// Pointers of messages hold the keys above them: long keys, many times over, are all of memory.
constexpr std::size_t kLongestKey = 4096;

// Builds a Json from the library's parse events.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const char* begin, const char* const* read, const JsonOptions& options)
      : scanned_(begin),
        line_start_(begin),
        read_(read),
        line_(options.first_line),
        max_depth_(options.max_depth),
        values_left_(options.max_values) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX))
      return add(Json(static_cast<double>(value)));
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (name.size() > kLongestKey) {
      refused = Refused::long_key;
      return false;
    }
    if (is_repeated(name) && duplicates.size() < kMostDuplicates) {
      duplicates.push_back({pointer() + "/" + pointer_token(name), here().line});
    }
    open_.back()->members().emplace_back(std::move(name), Json());
    return true;
  }

  bool parse_error(std::size_t position,
                   const std::string&,
                   const nlohmann::json::exception& error) override {
    error_offset = position == 0 ? 0 : position - 1;
    error_text = error.what();
    return false;
  }

  Json root;
  std::vector<DuplicateKey> duplicates;
  std::size_t error_offset = 0;
  std::string error_text;
  enum class Refused { nothing, depth, values, long_key } refused = Refused::nothing;

 private:
  static constexpr std::size_t kMostDuplicates = 100;

  // Whether the open object has a member of that name. Its names are a set where they are many.
  bool is_repeated(const std::string& name) {
    constexpr std::size_t kFew = 16;
    const std::vector<Json::Member>& members = open_.back()->members();
    if (members.size() < kFew) {
      return std::any_of(members.begin(), members.end(), [&](const Json::Member& member) {
        return member.first == name;
      });
    }
    std::unordered_set<std::string>& names = keys_.back();
    if (names.empty()) {
      for (const Json::Member& member : members) names.insert(member.first);
    }
    return !names.insert(name).second;
  }

  // Line and column of the end of what was read last.
  Position here() {
    for (; scanned_ < *read_; ++scanned_) {
      if (*scanned_ == '\n') {
        ++line_;
        line_start_ = scanned_ + 1;
      }
    }
    return {line_, static_cast<int>(std::max<std::ptrdiff_t>(1, *read_ - line_start_))};
  }

  std::string pointer() const {
    std::string text;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Json& value = *open_[i];
      text += "/" + (value.is_object() ? pointer_token(value.members().back().first)
                                       : std::to_string(value.items().size() - 1));
    }
    return text;
  }

  // Null where there is no room for it.
  Json* place(Json value) {
    if (--values_left_ < 0) {
      refused = Refused::values;
      return nullptr;
    }
    const Position at = here();
    value.set_position(at.line, at.column);
    if (open_.empty()) return &(root = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return &(parent.members().back().second = std::move(value));
    return &parent.items().emplace_back(std::move(value));
  }

  bool add(Json value) { return place(std::move(value)) != nullptr; }

  bool open(Json value) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      refused = Refused::depth;
      return false;
    }
    Json* placed = place(std::move(value));
    if (placed == nullptr) return false;
    open_.push_back(placed);
    keys_.emplace_back();
    return true;
  }

  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  const char* scanned_;
  const char* line_start_;
  const char* const* read_;
  int line_;
  int max_depth_;
  std::int64_t values_left_;
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open value
};

bool looks_binary(std::string_view text) {
  return text.substr(0, 4096).find('\0') != std::string_view::npos;
}

// The run of word characters at or around `offset`: the "FOO" of {"a": FOO}.
std::string_view word_at(std::string_view text, std::size_t offset) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::size_t begin = std::min(offset, text.size());
  while (begin > 0 && is_word(text[begin - 1])) --begin;
  std::size_t end = std::min(offset, text.size());
  while (end < text.size() && is_word(text[end])) ++end;
  return text.substr(begin, end - begin);
}

// Where the token that ends at `offset` begins. Strings of JSON hold no line breaks.
std::size_t token_begin(std::string_view text, std::size_t offset) {
  if (offset >= text.size()) return text.size();
  if (text[offset] != '"') {
    const std::string_view word = word_at(text, offset);
    return word.empty() ? offset : static_cast<std::size_t>(word.data() - text.data());
  }
  const std::size_t line = text.rfind('\n', offset);
  for (std::size_t i = line == std::string_view::npos ? 0 : line + 1; i < offset; ++i) {
    if (text[i] != '"') continue;
    const std::size_t close = end_of_string(text, i);
    if (close >= offset) return i;
    i = close;
  }
  return offset;
}

// Why reading stopped at `offset`, as a hint that names the usual causes.
Phrase syntax_hint(std::string_view text, std::size_t offset) {
  const std::string_view word = word_at(text, offset);
  const std::string name(word);
  if (name == "NaN" || name == "Infinity" || name == "nan" || name == "inf") {
    return "JSON has no NaN and no Infinity: write a number";
  }
  if (name == "True" || name == "False" || name == "None") {
    return "this is Python, not JSON: write true, false or null in lower case";
  }
  const bool upper = word.size() > 2 && std::all_of(word.begin(), word.end(), [](char c) {
                       return std::isupper(static_cast<unsigned char>(c)) || c == '_' ||
                              std::isdigit(static_cast<unsigned char>(c));
                     });
  if (upper && std::isupper(static_cast<unsigned char>(word[0]))) {
    return phrase("this is a template: replace the placeholder {} by a value", name);
  }
  if (offset < text.size() && (text[offset] == '$' || text[offset] == '<')) {
    return "this looks like a template: replace the placeholder by a value";
  }
  if (offset < text.size() && text[offset] == '\'') return "JSON strings stand in double quotes";
  if (offset < text.size() && text[offset] == '"') return "a comma may be missing before this";
  if (offset >= text.size())
    return "the file ends too early: a closing bracket or quote is missing";
  return "";
}

[[noreturn]] void throw_syntax(std::string_view text,
                               std::size_t offset,
                               const std::string& file,
                               int first_line) {
  offset = token_begin(text, offset);
  Diagnostic diagnostic;
  diagnostic.file = file;
  diagnostic.pointer = to_pointer(position_of(text, offset, first_line));
  diagnostic.expected = "JSON";
  const std::string_view word = word_at(text, offset);
  diagnostic.got = offset >= text.size() ? "the end of the file"
                   : word.empty()        ? in_quotes(text.substr(offset, 1))
                                         : in_quotes(word);
  diagnostic.hint = syntax_hint(text, offset);
  throw InputError(diagnostic);
}

// What a document that was refused has too much of.
Phrase most_of(Builder::Refused refused, const JsonOptions& options) {
  switch (refused) {
    case Builder::Refused::depth:
      return phrase("at most {} nested brackets", options.max_depth);
    case Builder::Refused::long_key:
      return phrase("keys of at most {} bytes", kLongestKey);
    default:
      return phrase("a document of at most {} values", options.max_values);
  }
}

}  // namespace

JsonDocument parse_json(std::string_view text,
                        const std::string& file,
                        const JsonOptions& options) {
  if (text.substr(0, 3) == "\xef\xbb\xbf") text.remove_prefix(3);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InputError({file, "", "a JSON document", "an empty file", ""});
  }
  if (looks_binary(text)) {
    const bool utf16 = text.substr(0, 2) == "\xff\xfe" || text.substr(0, 2) == "\xfe\xff";
    throw InputError({file,
                      "",
                      "a JSON document",
                      utf16 ? "text in UTF-16" : "a binary file",
                      utf16 ? "save the file as UTF-8" : ""});
  }
  const Relaxed relaxed = relax(text, options);
  const char* read = relaxed.text.data();
  Builder builder(relaxed.text.data(), &read, options);
  const bool complete =
      nlohmann::json::sax_parse(TrackingIterator(relaxed.text.data(), &read),
                                TrackingIterator(relaxed.text.data() + relaxed.text.size(), &read),
                                &builder);
  if (builder.refused != Builder::Refused::nothing) {
    const auto offset = static_cast<std::size_t>(read - relaxed.text.data()) - 1;
    throw InputError({file,
                      to_pointer(position_of(text, offset, options.first_line)),
                      most_of(builder.refused, options),
                      "more",
                      ""});
  }
  if (!complete) throw_syntax(relaxed.text, builder.error_offset, file, options.first_line);
  return {file,
          std::move(builder.root),
          std::move(builder.duplicates),
          relaxed.had_comments,
          relaxed.had_trailing_commas};
}

}  // namespace zeroplan
