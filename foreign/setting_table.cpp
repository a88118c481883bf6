#include "foreign/setting_table.hpp"

#include <charconv>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/embedded.hpp"
#include "base/enum_names.hpp"
#include "base/written_names.hpp"
#include "foreign/setting_values.hpp"
#include "foreign/yaml_scalar.hpp"

namespace zeroplan::foreign {
namespace {

constexpr const char* kPath = "configs/foreign.json";
constexpr auto kRules = enumerator_names<Rule>();
constexpr auto kTypes = enumerator_names<ValueType>();

// "sequence_length" of /workload/sequence_length.
std::optional<ScenarioKey> key_named(std::string_view name) {
  for (const ScenarioKeyInfo& key : kScenarioKeys) {
    if (key.pointer.substr(key.pointer.rfind('/') + 1) == name) return key.key;
  }
  return std::nullopt;
}

// configs/foreign.json, whose texts and values the rows point into.
class Table {
 public:
  Table() {
    for (const auto& [group, objects] : member("settings").members()) {
      for (const Json& object : objects.items()) rows.push_back(row_of(object));
    }
    for (const SettingRow& row : rows) {
      first_name(row.names, [&](std::string_view name) {
        if (!row.under.empty())
          name = whole_.emplace_back(std::string(row.under) + std::string(name));
        const bool is_new = by_name.emplace(std::pair(name, row.tool), &row).second;
        ZP_CHECK(is_new, kPath + (" has twice " + std::string(name)));
        return false;
      });
    }
    for (const Json& object : member("defaults").items()) {
      defaults.push_back({object.find("tools")->as_string(),
                          key_named(object.find("is")->as_string()).value(),
                          object.find("value"),
                          object.find("says")->as_string()});
    }
  }

  const Json& member(std::string_view key) const {
    const Json* found = document_.find(key);
    ZP_CHECK(found != nullptr, kPath + (" lacks " + std::string(key)));
    return *found;
  }

 private:
  template <typename Enum, std::size_t N>
  static std::optional<Enum> choice(const Json& object,
                                    std::string_view key,
                                    const EnumNames<Enum, N>& names) {
    const Json* said = object.find(key);
    if (said == nullptr) return std::nullopt;
    const std::optional<Enum> found = find(names, std::string_view(said->as_string()));
    ZP_CHECK(found.has_value(), kPath + (" has an unknown name: " + said->as_string()));
    return found;
  }

  static SettingRow row_of(const Json& object) {
    const auto text = [&](std::string_view key) {
      const Json* said = object.find(key);
      return said == nullptr ? std::string_view() : std::string_view(said->as_string());
    };
    SettingRow row;
    row.names = text("names");
    row.under = text("under");
    row.tool = choice(object, "tool", kToolNames);
    row.is = text("is");
    const std::size_t dot = row.is.find('.');
    row.key = key_named(row.is.substr(0, dot));
    if (dot != std::string_view::npos) row.part = row.is.substr(dot + 1);
    row.rule = choice(object, "rule", kRules).value_or(Rule::none);
    row.type = choice(object, "type", kTypes).value_or(ValueType::any);
    row.words = object.find("words");
    row.weak = object.find("weak") != nullptr;
    row.of = text("of");
    row.refused = text("refused");
    row.always = object.find("always");
    row.own = object.find("own");
    row.when = text("when");
    row.otherwise = object.find("else");
    row.comment = text("comment");
    row.usual = object.find("usual");
    return row;
  }

  std::deque<std::string> whole_;  // names with what they stand under
  Json document_ = parse_json(embedded_file(kPath), kPath).root;

 public:
  std::vector<SettingRow> rows;
  std::vector<DefaultRow> defaults;
  std::map<std::pair<std::string_view, std::optional<Tool>>, const SettingRow*> by_name;
};

const Table& table() {
  static const Table once;
  return once;
}

std::optional<Json> number_of(ValueType type, const Json& value) {
  Json number = value.is_string() ? plain_scalar(value.as_string()) : value;
  if (!number.is_number()) {
    const std::string text = text_of(value);
    double real = 0.0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), real);
    if (error == std::errc() && stop == text.data() + text.size()) number = Json(real);
  }
  // What is no number is refused where the scenario is resolved.
  if (!number.is_number()) return type == ValueType::number ? std::optional(value) : std::nullopt;
  if (type == ValueType::positive) {
    return number.as_number() > 0.0 ? std::optional(number) : std::nullopt;
  }
  const bool whole = type == ValueType::number && value.is_number();
  return whole ? value : Json(number.as_number());
}

bool says(const Json& theirs, const Json& word) {
  if (word == Json("*")) return true;
  if (word.is_boolean()) return word.as_boolean() ? is_on(theirs) : is_switched_off(theirs);
  return folded(text_of(theirs), "-_") == folded(text_of(word), "-_");
}

std::optional<Json> by_words(const Json& words, const Json& theirs) {
  bool switches = true;
  for (const auto& [ours, word] : words.members()) {
    for (const Json& one : word.is_array() ? word.items() : std::vector<Json>{word}) {
      switches = switches && one.is_boolean();
      if (ours != "*" && says(theirs, one))
        return ours.empty() ? std::nullopt : std::optional(Json(ours));
    }
  }
  return switches ? std::nullopt : std::optional(Json(text_of(theirs)));
}

}  // namespace

std::span<const SettingRow> setting_rows() { return table().rows; }
std::span<const DefaultRow> default_rows() { return table().defaults; }

const SettingRow* find_row(std::string_view name, Tool tool) {
  const auto& rows = table().by_name;
  auto found = rows.find({name, tool});
  if (found == rows.end() && !has_own_arguments(tool)) found = rows.find({name, std::nullopt});
  // "critic.*": everything of a section. Hydra itself stops at a name that it does not have.
  for (std::size_t dot = name.rfind('.'); found == rows.end() && dot != std::string_view::npos;
       dot = dot == 0 ? std::string_view::npos : name.rfind('.', dot - 1)) {
    found = rows.find({std::string(name.substr(0, dot + 1)) + "*", tool});
  }
  return found == rows.end() ? nullptr : found->second;
}

std::vector<std::string_view> written_names(std::string_view form) {
  std::vector<std::string_view> names;
  for (const Json& line : table().member("written").find(form)->items()) {
    std::string_view rest = line.as_string();
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      names.push_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return names;
}

bool is_unused(std::string_view name) {
  for (const Json& line : table().member("unused").items()) {
    if (is_named_in(line.as_string(), name)) return true;
  }
  return false;
}

std::optional<Json> read_value(const SettingRow& row, const Json& theirs) {
  if (row.words != nullptr) return by_words(*row.words, theirs);
  switch (row.type) {
    case ValueType::any:
      return theirs;
    case ValueType::flag:
      return Json(is_on(theirs) || count_of(theirs) > 1);  // sleep_level 2
    case ValueType::count:
      return Json(count_of(theirs));
    case ValueType::names:
    case ValueType::joined: {
      Json list = Json::array();
      for (const std::string& name : names_in(theirs)) list.push_back(name);
      return list;
    }
    default:
      return number_of(row.type, theirs);
  }
}

std::optional<Json> written_value(const SettingRow& row, const Json* ours) {
  if (row.words != nullptr) {
    const Json* word = ours == nullptr ? nullptr : row.words->find(text_of(*ours));
    if (word == nullptr) word = row.words->find("*");
    if (word == nullptr) return std::nullopt;
    return word->is_array() ? word->items().front() : *word;
  }
  if (ours == nullptr) return std::nullopt;
  if (row.type != ValueType::joined) return *ours;
  std::string text;
  for (const Json& name : ours->items()) text += (text.empty() ? "" : ",") + name.as_string();
  return Json(text);
}

}  // namespace zeroplan::foreign
