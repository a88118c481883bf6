#include "foreign/yaml.hpp"

#include <map>
#include <memory>

#include <yaml.h>

#include "base/diagnostic.hpp"
#include "foreign/yaml_scalar.hpp"

namespace zeroplan::foreign {
namespace {

constexpr int kMostDepth = 64;  // as of JSON
// Files of tools have hundreds. Of values those count twice that an anchor keeps for its aliases.
constexpr std::int64_t kMostYamlValues = 100'000;
constexpr std::size_t kMostKeys =
    10'000;  // of one mapping, whose keys are compared with each other

std::string text_of(const yaml_char_t* text, std::size_t length) {
  return {reinterpret_cast<const char*>(text), length};
}

// An event of the parser, freed.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (read_) yaml_event_delete(&event_);
  }
  bool read_from(yaml_parser_t& parser) {
    read_ = yaml_parser_parse(&parser, &event_) == 1;
    return read_;
  }
  const yaml_event_t* operator->() const { return &event_; }

 private:
  yaml_event_t event_{};
  bool read_ = false;
};

class YamlReader {
 public:
  YamlReader(std::string_view text, const std::string& file) : file_(file) {
    if (yaml_parser_initialize(&parser_) != 1) throw std::bad_alloc();
    yaml_parser_set_input_string(
        &parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;
  ~YamlReader() { yaml_parser_delete(&parser_); }

  Json read() {
    while (true) {
      Event event;
      next(event);
      if (event->type == YAML_STREAM_END_EVENT) return {};
      const bool opens = event->type == YAML_STREAM_START_EVENT ||
                         event->type == YAML_DOCUMENT_START_EVENT ||
                         event->type == YAML_DOCUMENT_END_EVENT;
      if (!opens) return value(event, 0);
    }
  }

 private:
  [[noreturn]] void fail(const yaml_mark_t& mark,
                         const Phrase& expected,
                         const Phrase& got,
                         const Phrase& hint = "") const {
    throw InputError(
        {file_,
         "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1),
         expected,
         got,
         hint});
  }

  void next(Event& event) {
    if (event.read_from(parser_)) return;
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    const bool scanned = parser_.error == YAML_SCANNER_ERROR || parser_.error == YAML_PARSER_ERROR;
    yaml_mark_t mark = scanned ? parser_.problem_mark : parser_.mark;
    fail(mark, "YAML", parser_.problem == nullptr ? "something else" : parser_.problem);
  }

  Json placed(Json value, const yaml_mark_t& mark) {
    value.set_position(static_cast<int>(mark.line) + 1, static_cast<int>(mark.column) + 1);
    return value;
  }

  void count(const yaml_mark_t& mark, std::int64_t values) {
    values_ += values;
    if (values_ > kMostYamlValues) {
      fail(mark, phrase("at most {} values", kMostYamlValues), "more");
    }
  }

  static std::int64_t size_of(const Json& value) {
    std::int64_t size = 1;
    for (const Json& item : value.items()) size += size_of(item);
    for (const auto& [key, member] : value.members()) size += size_of(member);
    return size;
  }

  Json value(const Event& event, int depth) {
    if (depth > kMostDepth) fail(event->start_mark, "at most 64 levels", "more");
    count(event->start_mark, 1);
    switch (event->type) {
      case YAML_SCALAR_EVENT:
        return keep(event->data.scalar.anchor, scalar(event), event->start_mark);
      case YAML_SEQUENCE_START_EVENT:
        return keep(event->data.sequence_start.anchor, sequence(event, depth), event->start_mark);
      case YAML_MAPPING_START_EVENT:
        return keep(event->data.mapping_start.anchor, mapping(event, depth), event->start_mark);
      case YAML_ALIAS_EVENT:
        return alias(event);
      default:
        fail(event->start_mark, "a value", "nothing");
    }
  }

  Json keep(const yaml_char_t* anchor, Json value, const yaml_mark_t& mark) {
    if (anchor == nullptr) return value;
    count(mark, size_of(value));
    anchors_[reinterpret_cast<const char*>(anchor)] = value;
    return value;
  }

  Json alias(const Event& event) {
    const std::string name = reinterpret_cast<const char*>(event->data.alias.anchor);
    const auto found = anchors_.find(name);
    if (found == anchors_.end()) fail(event->start_mark, "the name of an anchor", in_quotes(name));
    count(event->start_mark, size_of(found->second));
    return placed(found->second, event->start_mark);
  }

  Json scalar(const Event& event) {
    const auto& scalar = event->data.scalar;
    const std::string text = text_of(scalar.value, scalar.length);
    // "!!str 1" is a text, too.
    const bool plain = scalar.style == YAML_PLAIN_SCALAR_STYLE && scalar.plain_implicit != 0;
    return placed(plain ? plain_scalar(text) : Json(text), event->start_mark);
  }

  Json sequence(const Event& start, int depth) {
    Json list = Json::array();
    while (true) {
      Event event;
      next(event);
      if (event->type == YAML_SEQUENCE_END_EVENT) return placed(std::move(list), start->start_mark);
      list.push_back(value(event, depth + 1));
    }
  }

  Json mapping(const Event& start, int depth) {
    Json object = Json::object();
    std::vector<Json> merged;
    while (true) {
      Event event;
      next(event);
      if (event->type == YAML_MAPPING_END_EVENT) break;
      if (event->type != YAML_SCALAR_EVENT) {
        fail(event->start_mark,
             "a key that is a text",
             "a list or a mapping",
             "what a template leaves in braces stands in quotes, or is filled first");
      }
      count(event->start_mark, 1);
      if (object.members().size() >= kMostKeys) {
        fail(event->start_mark, phrase("at most {} keys of one mapping", kMostKeys), "more");
      }
      const std::string key = text_of(event->data.scalar.value, event->data.scalar.length);
      Event content;
      next(content);
      Json member = value(content, depth + 1);
      // The key's line: a block stands below it.
      member.set_position(static_cast<int>(event->start_mark.line) + 1,
                          static_cast<int>(event->start_mark.column) + 1);
      if (key == "<<") {
        merged.push_back(std::move(member));
      } else {
        object[key] = std::move(member);
      }
    }
    for (const Json& other : merged) merge(object, other);
    return placed(std::move(object), start->start_mark);
  }

  // What the mapping says itself counts; of several the first.
  static void merge(Json& object, const Json& other) {
    for (const Json& one : other.items()) merge(object, one);
    for (const auto& [key, value] : other.members()) {
      if (object.find(key) == nullptr) object[key] = value;
    }
  }

  const std::string& file_;
  yaml_parser_t parser_{};
  std::map<std::string, Json> anchors_;
  std::int64_t values_ = 0;
};

}  // namespace

bool reads_yaml() { return true; }

Json parse_yaml(std::string_view text, const std::string& file) {
  return YamlReader(text, file).read();
}

}  // namespace zeroplan::foreign
