#include "model/knobs/knob_schema.hpp"

#include <algorithm>
#include <cmath>

#include "model/knobs/ds_config_spelling.hpp"
#include "model/knobs/knobs.hpp"

namespace zeroplan {
namespace {

Json to_json(const KnobLiteral& literal) {
  switch (literal.kind) {
    case KnobLiteral::Kind::none:
      return {};
    case KnobLiteral::Kind::boolean:
      return literal.integer != 0;
    case KnobLiteral::Kind::integer:
      return literal.integer;
    case KnobLiteral::Kind::real:
      return literal.real;
    case KnobLiteral::Kind::text:
      return literal.text;
    case KnobLiteral::Kind::json:
      return parse_json(literal.text, "the table of knobs").root;
  }
  return {};
}

const char* type_of(KnobType type) {
  switch (type) {
    case KnobType::boolean:
      return "boolean";
    case KnobType::integer:
      return "integer";
    case KnobType::real:
      return "number";
    case KnobType::text:
      return "string";
    case KnobType::list:
      return "array";
    case KnobType::object:
      return "object";
  }
  return "";
}

// A whole number is one in the document, too.
Json bound(double value) {
  const bool whole = value == std::floor(value) && std::fabs(value) < 1e15;
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

// What the row says of a plain value.
Json value_schema(const KnobRow& row) {
  Json schema = Json::object({{"type", type_of(row.type)}});
  if (!row.allowed.empty()) {
    Json texts = Json::array();
    for (const std::string& text : spelling::accepted_texts(row)) texts.push_back(text);
    schema["enum"] = texts;
  }
  if (row.type == KnobType::integer || row.type == KnobType::real) {
    if (std::isfinite(row.range.low)) schema["minimum"] = bound(row.range.low);
    if (std::isfinite(row.range.high)) schema["maximum"] = bound(row.range.high);
  }
  return schema;
}

// With "auto" where somebody replaces it, null where that is the default.
Json with_other_values(const KnobRow& row) {
  Json schema = value_schema(row);
  const bool automatic = row.automatic != AutoRule::unresolved;
  const bool null = row.default_value.is_none() && row.older.empty();
  if (!automatic && !null) return schema;
  Json choices = Json::array({schema});
  if (automatic) choices.push_back(Json::object({{"const", "auto"}}));
  if (null) choices.push_back(Json::object({{"type", "null"}}));
  return Json::object({{"anyOf", choices}});
}

std::string meaning(const KnobRow& row) {
  std::string text(row.description);
  if (row.unit != KnobUnit::none) text += " Unit: " + std::string(name(row.unit)) + ".";
  if (row.stages.bits != kEveryStage.bits) {
    text += " ZeRO stages: " + reference_row(row).stages + ".";
  }
  if (row.affects.any()) text += " Changes " + reference_row(row).affects + ".";
  if (const std::string_view filled = describe(row.automatic); !filled.empty()) {
    text += " \"auto\": " + std::string(filled) + ".";
  }
  return text;
}

Json knob_property(const KnobRow& row, const Version& release) {
  Json schema = Json::object({{"description", meaning(row)}});
  const Json values = with_other_values(row);
  for (const auto& [key, value] : values.members()) schema[key] = value;
  const KnobLiteral standard = default_literal(row.id, 0, release);
  if (!standard.is_none()) schema["default"] = to_json(standard);
  if (!row.grid.empty()) {
    Json examples = Json::array();
    for (const KnobLiteral& point : row.grid) examples.push_back(to_json(point));
    schema["examples"] = examples;
  }
  return schema;
}

std::string key_of(std::string_view pointer) {
  return std::string(pointer.substr(pointer.rfind('/') + 1));
}

// An older name, or one more.
Json alias_property(const KnobRow& row, const KnobAlias& alias, const Version& release) {
  const bool flag = alias.kind == AliasKind::cpu_flag || alias.kind == AliasKind::pinned_flag;
  Json schema = knob_property(row, release);
  const std::string canonical = std::string(row.pointer.substr(1));
  if (flag) {
    schema = Json::object({{"type", "boolean"}});
  }
  schema["description"] = "Another name of " + canonical + ". " + std::string(row.description);
  if (alias.kind == AliasKind::alternative) return schema;
  schema["deprecated"] = true;
  schema["deprecationMessage"] = "write " + canonical;  // what VS Code shows
  return schema;
}

Json refused_property(const KnobRow& row) {
  const std::string text = "DeepSpeed refuses this key since " + to_string(row.removed) + ".";
  return Json::object({{"description", text + " " + std::string(row.description)},
                       {"not", Json::object()},
                       {"deprecated", true},
                       {"deprecationMessage", text}});
}

// What the schema says of sections, besides their keys.
Json empty_section(std::string_view pointer, DeepSpeedVersion version) {
  Json schema = Json::object({{"type", "object"}, {"properties", Json::object()}});
  // The switch of the first releases, still read (runtime/zero/config.py:
  // read_zero_config_deprecated).
  if (pointer == "/zero_optimization") schema["type"] = Json::array({"object", "boolean"});
  const std::optional<KnobSection> section = find_section(pointer);
  if (section && section->strict_since && version >= *section->strict_since) {
    schema["additionalProperties"] = false;
  }
  return schema;
}

class SchemaWriter {
 public:
  explicit SchemaWriter(const Version& release)
      : release_(release), version_(nearest_described(release).version) {}

  Json write() {
    root_ = Json::object({{"$schema", "http://json-schema.org/draft-07/schema#"},
                          {"title", "ds_config.json of DeepSpeed " + to_string(release_)}});
    const Json top = empty_section("", version_);
    for (const auto& [key, value] : top.members()) root_[key] = value;
    for (const KnobRow& row : knob_rows()) add(row);
    return std::move(root_);
  }

 private:
  bool is_known(const KnobRow& row) const {
    return row.added == Version{} ? version_ >= row.since : release_ >= row.added;
  }

  void add(const KnobRow& row) {
    if (!is_known(row)) return;
    if (row.removed != Version{} && release_ >= row.removed) {
      place(row.pointer, refused_property(row));
      return;
    }
    place(row.pointer, knob_property(row, release_));
    for (const KnobAlias& alias : row.aliases) {
      place(alias.pointer, alias_property(row, alias, release_));
    }
  }

  void place(std::string_view pointer, Json property) {
    Json* section = &root_;
    for (std::size_t end = pointer.find('/', 1); end != std::string_view::npos;
         end = pointer.find('/', end + 1)) {
      const std::string_view within = pointer.substr(0, end);
      Json& properties = (*section)["properties"];
      if (properties.find(key_of(within)) == nullptr) {
        properties[key_of(within)] = empty_section(within, version_);
      }
      section = properties.find(key_of(within));
    }
    (*section)["properties"][key_of(pointer)] = std::move(property);
  }

  Version release_;
  DeepSpeedVersion version_;
  Json root_;
};

}  // namespace

Json knob_schema(const Version& release) { return SchemaWriter(release).write(); }

}  // namespace zeroplan
