#include "model/knobs/knobs.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>

#include "base/check.hpp"
#include "base/embedded.hpp"
#include "base/enum_names.hpp"
#include "base/json.hpp"

namespace zeroplan {
namespace {

constexpr const char* kPath = "configs/knobs.json";
constexpr auto kNames = enumerator_names<Knob>();
constexpr std::size_t kNamed = kNames.names.size();

std::string unknown(const std::string& word) {
  return "configs/knobs.json has a word that nothing knows: " + word;
}

// The enumerator that a text of the document names.
template <typename Enum>
Enum enumerator(const Json& value) {
  constexpr auto kAll = enumerator_names<Enum>();
  const std::optional<Enum> found = find(kAll, value.as_string());
  ZP_CHECK(found.has_value(), unknown(value.as_string()));
  return *found;
}

DeepSpeedVersion series_of(const Json& value) {
  for (int i = 0; i <= static_cast<int>(kNewestDeepSpeed); ++i) {
    const auto version = static_cast<DeepSpeedVersion>(i);
    if (name(version) == value.as_string()) return version;
  }
  ZP_CHECK(false, unknown(value.as_string()));
  return {};
}

Version release_of(const Json& value) {
  const std::optional<Version> release = parse_version(value.as_string());
  ZP_CHECK(release.has_value(), unknown(value.as_string()));
  return *release;
}

KnobLiteral literal_of(const Json& value) {
  using Kind = KnobLiteral::Kind;
  if (value.is_boolean()) return {.kind = Kind::boolean, .integer = value.as_boolean() ? 1 : 0};
  if (value.is_integer()) return {.kind = Kind::integer, .integer = value.as_integer()};
  if (value.is_number()) return {.kind = Kind::real, .real = value.as_number()};
  return {.kind = Kind::text, .text = value.as_string()};
}

std::vector<KnobLiteral> literals_of(const Json& list) {
  std::vector<KnobLiteral> literals;
  for (const Json& item : list.items()) literals.push_back(literal_of(item));
  return literals;
}

OlderDefault older_of(const Json& object) {
  OlderDefault older;
  for (const auto& [key, value] : object.members()) {
    if (key == "until") {
      older.until = series_of(value);
    } else if (key == "value") {
      older.value = literal_of(value);
    } else {
      ZP_CHECK(key == "before", unknown(key));
      older.before = release_of(value);
    }
  }
  return older;
}

Effects effects_of(const Json& list) {
  Effects effects;
  for (const Json& item : list.items()) {
    const std::string& what = item.as_string();
    const bool known = what == "gpu_memory" || what == "host_memory" || what == "time";
    ZP_CHECK(known, unknown(what));
    if (what == "gpu_memory") effects.gpu_memory = true;
    if (what == "host_memory") effects.host_memory = true;
    if (what == "time") effects.time = true;
  }
  return effects;
}

StageSet stages_of(const Json& list) {
  StageSet stages{0};
  for (const Json& stage : list.items()) stages.bits |= std::uint8_t(1 << stage.as_integer());
  return stages;
}

KnobRange range_of(const Json& bounds) {
  ZP_CHECK(bounds.items().size() == 2, "a range of configs/knobs.json has two bounds");
  KnobRange range;
  if (const Json& low = bounds.items()[0]; !low.is_null()) range.low = low.as_number();
  if (const Json& high = bounds.items()[1]; !high.is_null()) range.high = high.as_number();
  return range;
}

// A member of a row's object, and the field that it sets.
struct Field {
  std::string_view key;
  void (*read)(const Json& value, KnobRow& row);
};
constexpr std::array kFields = {
    Field{"pointer", [](const Json& value, KnobRow& row) { row.pointer = value.as_string(); }},
    Field{"name", [](const Json& value, KnobRow& row) { row.id = enumerator<Knob>(value); }},
    Field{"type", [](const Json& value, KnobRow& row) { row.type = enumerator<KnobType>(value); }},
    Field{"unit", [](const Json& value, KnobRow& row) { row.unit = enumerator<KnobUnit>(value); }},
    Field{"default_value",
          [](const Json& value, KnobRow& row) { row.default_value = literal_of(value); }},
    Field{"stage3_default",
          [](const Json& value, KnobRow& row) { row.stage3_default = literal_of(value); }},
    Field{"older",
          [](const Json& list, KnobRow& row) {
            for (const Json& item : list.items()) row.older.push_back(older_of(item));
          }},
    Field{"since", [](const Json& value, KnobRow& row) { row.since = series_of(value); }},
    Field{"added", [](const Json& value, KnobRow& row) { row.added = release_of(value); }},
    Field{"removed", [](const Json& value, KnobRow& row) { row.removed = release_of(value); }},
    Field{"automatic",
          [](const Json& value, KnobRow& row) { row.automatic = enumerator<AutoRule>(value); }},
    Field{"trainer_owned",
          [](const Json& value, KnobRow& row) { row.trainer_owned = value.as_boolean(); }},
    Field{"range", [](const Json& value, KnobRow& row) { row.range = range_of(value); }},
    Field{"allowed",
          [](const Json& list, KnobRow& row) {
            for (const Json& item : list.items()) row.allowed.push_back(item.as_string());
          }},
    Field{"aliases",
          [](const Json& object, KnobRow& row) {
            for (const auto& [pointer, kind] : object.members()) {
              row.aliases.push_back({pointer, enumerator<AliasKind>(kind)});
            }
          }},
    Field{"stages", [](const Json& value, KnobRow& row) { row.stages = stages_of(value); }},
    Field{"affects", [](const Json& value, KnobRow& row) { row.affects = effects_of(value); }},
    Field{"modelled", [](const Json& value, KnobRow& row) { row.modelled = value.as_boolean(); }},
    Field{"grid", [](const Json& value, KnobRow& row) { row.grid = literals_of(value); }},
    Field{"searched_grid",
          [](const Json& value, KnobRow& row) { row.searched_grid = literals_of(value); }},
    Field{"role", [](const Json& value, KnobRow& row) { row.role = enumerator<KnobRole>(value); }},
    Field{"description",
          [](const Json& value, KnobRow& row) { row.description = value.as_string(); }},
    Field{"source", [](const Json& value, KnobRow& row) { row.source = value.as_string(); }},
};

const Field& field_of(std::string_view key) {
  const auto* const field = std::find_if(
      kFields.begin(), kFields.end(), [&](const Field& one) { return one.key == key; });
  ZP_CHECK(field != kFields.end(), unknown(std::string(key)));
  return *field;
}

// configs/knobs.json, whose texts the rows point into.
class Table {
 public:
  Table() : rows(read_rows()), of_knob(rows.size()) {
    for (const KnobRow& row : rows) of_knob[static_cast<std::size_t>(row.id)] = &row;
    for (const auto& [pointer, since] : member("strict_sections").members()) {
      strict_sections.push_back({pointer, series_of(since)});
    }
  }

 private:
  const Json& member(std::string_view key) const {
    const Json* found = document_.find(key);
    ZP_CHECK(found != nullptr, "configs/knobs.json lacks " + std::string(key));
    return *found;
  }

  static KnobRow row_of(const Json& object, Knob without_name) {
    KnobRow row{.id = without_name};
    for (const auto& [key, value] : object.members()) {
      field_of(key).read(value, row);
    }
    const bool json = row.type == KnobType::list || row.type == KnobType::object;
    if (json && !row.default_value.is_none()) row.default_value.kind = KnobLiteral::Kind::json;
    return row;
  }

  // Rows without a name are numbered behind those that have one.
  std::vector<KnobRow> read_rows() const {
    std::vector<KnobRow> read;
    read.reserve(2 * kNamed + 100);
    std::size_t named = 0;
    for (const auto& [group, objects] : member("knobs").members()) {
      for (const Json& object : objects.items()) {
        const auto without_name = static_cast<Knob>(kNamed + read.size() - named);
        read.push_back(row_of(object, without_name));
        if (read.back().id == without_name) continue;
        ZP_CHECK(read.back().id == static_cast<Knob>(named), "names in the order of Knob");
        ++named;
      }
    }
    ZP_CHECK(named == kNamed, "configs/knobs.json lacks the row of a name");
    return read;
  }

  Json document_ = parse_json(embedded_file(kPath), kPath).root;

 public:
  std::vector<KnobRow> rows;
  std::vector<const KnobRow*> of_knob;  // by number
  std::vector<KnobSection> strict_sections;
};

const Table& table() {
  static const Table once;
  return once;
}

// --- sections

bool is_inside(std::string_view pointer, std::string_view section) {
  return pointer.size() > section.size() && pointer.starts_with(section) &&
         pointer[section.size()] == '/';
}

template <typename Visit>
void for_each_pointer(Visit visit) {
  for (const KnobRow& row : knob_rows()) {
    visit(row.pointer);
    for (const KnobAlias& alias : row.aliases) visit(alias.pointer);
  }
}

KnobLiteral newest_literal(const KnobRow& row, int stage) {
  if (stage == 3 && !row.stage3_default.is_none()) return row.stage3_default;
  return row.default_value;
}

}  // namespace

std::span<const KnobRow> knob_rows() { return table().rows; }

Knob first_without_name() { return static_cast<Knob>(kNamed); }

const KnobRow& knob_row(Knob knob) { return *table().of_knob[static_cast<std::size_t>(knob)]; }

KnobLiteral default_literal(Knob knob, int stage, const Version& release) {
  const KnobRow& row = knob_row(knob);
  const DeepSpeedVersion series = nearest_described(release).version;
  for (const OlderDefault& older : row.older) {
    if (series <= older.until || release < older.before) return older.value;
  }
  return newest_literal(row, stage);
}

KnobLiteral default_literal(Knob knob, int stage, DeepSpeedVersion version) {
  const KnobRow& row = knob_row(knob);
  for (const OlderDefault& older : row.older) {
    if (version <= older.until) return older.value;
  }
  return newest_literal(row, stage);
}

std::optional<Knob> find_knob(std::string_view pointer) {
  for (const KnobRow& row : knob_rows()) {
    if (row.pointer == pointer) return row.id;
  }
  return std::nullopt;
}

std::optional<AliasMatch> find_alias(std::string_view pointer) {
  for (const KnobRow& row : knob_rows()) {
    for (const KnobAlias& alias : row.aliases) {
      if (alias.pointer == pointer) return AliasMatch{row.id, alias.kind};
    }
  }
  return std::nullopt;
}

std::optional<KnobSection> find_section(std::string_view pointer) {
  bool found = pointer.empty();
  for_each_pointer([&](std::string_view known) { found = found || is_inside(known, pointer); });
  if (!found) return std::nullopt;
  for (const KnobSection& strict : table().strict_sections) {
    if (strict.pointer == pointer) return strict;
  }
  return KnobSection{pointer, std::nullopt};
}

std::vector<std::string_view> names_in_section(std::string_view section) {
  std::vector<std::string_view> names;
  for_each_pointer([&](std::string_view pointer) {
    if (!is_inside(pointer, section)) return;
    std::string_view rest = pointer.substr(section.size() + 1);
    rest = rest.substr(0, rest.find('/'));
    if (std::find(names.begin(), names.end(), rest) == names.end()) names.push_back(rest);
  });
  return names;
}

std::string to_string(const KnobLiteral& literal) {
  using Kind = KnobLiteral::Kind;
  switch (literal.kind) {
    case Kind::none:
      return "";
    case Kind::boolean:
      return literal.integer != 0 ? "true" : "false";
    case Kind::integer:
      return std::to_string(literal.integer);
    case Kind::real: {
      std::ostringstream text;
      text << literal.real;
      const bool plain = text.str().find_first_of(".e") == std::string::npos;
      return plain ? text.str() + ".0" : text.str();
    }
    case Kind::text:
    case Kind::json:
      return std::string(literal.text);
  }
  return "";
}

}  // namespace zeroplan
