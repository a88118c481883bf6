#include "model/knobs/ds_config.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.hpp"
#include "base/json_pointer.hpp"

namespace zeroplan {
namespace {

bool fits_type(const KnobRow& row, const KnobValue& value) {
  if (std::holds_alternative<Auto>(value)) return true;
  switch (row.type) {
    case KnobType::boolean:
      return std::holds_alternative<bool>(value);
    case KnobType::integer:
      return std::holds_alternative<std::int64_t>(value);
    case KnobType::real:
      return std::holds_alternative<double>(value);
    case KnobType::text:
      return std::holds_alternative<std::string>(value);
    case KnobType::list:
      return std::holds_alternative<Json>(value) && std::get<Json>(value).is_array();
    case KnobType::object:
      return std::holds_alternative<Json>(value) && std::get<Json>(value).is_object();
  }
  return false;
}

}  // namespace

Json to_json(const KnobValue& value) {
  struct Visitor {
    Json operator()(Unset) const { return nullptr; }
    Json operator()(Auto) const { return "auto"; }
    Json operator()(const Json& json) const { return json; }
    Json operator()(bool flag) const { return flag; }
    Json operator()(std::int64_t number) const { return number; }
    Json operator()(double number) const { return number; }
    Json operator()(const std::string& text) const { return text; }
  };
  return std::visit(Visitor{}, value);
}

const KnobValue& DsConfig::value(Knob knob) const {
  static const KnobValue kUnset;
  const auto found = values_.find(knob);
  return found == values_.end() ? kUnset : found->second;
}

bool DsConfig::is_auto(Knob knob) const { return std::holds_alternative<Auto>(value(knob)); }

std::optional<bool> DsConfig::boolean(Knob knob) const {
  if (const bool* flag = std::get_if<bool>(&value(knob))) return *flag;
  return std::nullopt;
}

std::optional<std::int64_t> DsConfig::integer(Knob knob) const {
  if (const std::int64_t* number = std::get_if<std::int64_t>(&value(knob))) return *number;
  return std::nullopt;
}

std::optional<double> DsConfig::real(Knob knob) const {
  if (const double* number = std::get_if<double>(&value(knob))) return *number;
  return std::nullopt;
}

std::optional<std::string> DsConfig::text(Knob knob) const {
  if (const std::string* text = std::get_if<std::string>(&value(knob))) return *text;
  return std::nullopt;
}

const Json* DsConfig::json(Knob knob) const { return std::get_if<Json>(&value(knob)); }

void DsConfig::set(Knob knob, KnobValue value) {
  const KnobRow& row = knob_row(knob);
  if (std::holds_alternative<Unset>(value)) {
    values_.erase(knob);
    return;
  }
  if (const std::int64_t* number = std::get_if<std::int64_t>(&value);
      number != nullptr && row.type == KnobType::real) {
    value = static_cast<double>(*number);
  }
  ZP_CHECK(fits_type(row, value), "a value of the wrong type for " + std::string(row.pointer));
  values_.insert_or_assign(knob, std::move(value));
}

std::vector<std::pair<Knob, const KnobValue&>> DsConfig::values() const {
  std::vector<std::pair<Knob, const KnobValue&>> ordered;
  ordered.reserve(values_.size());
  const auto without_name = values_.lower_bound(first_without_name());
  std::merge(values_.begin(),
             without_name,
             without_name,
             values_.end(),
             std::back_inserter(ordered),
             [](const auto& a, const auto& b) { return is_before(a.first, b.first); });
  return ordered;
}

bool operator==(const DsConfig& a, const DsConfig& b) {
  return a.values_ == b.values_ &&
         std::is_permutation(
             a.unknown_.begin(), a.unknown_.end(), b.unknown_.begin(), b.unknown_.end());
}

Json emit(const DsConfig& config) {
  Json root = Json::object();
  for (const auto& [knob, value] : config.values()) {
    json_at(root, pointer_of(knob)) = to_json(value);
  }
  for (const UnknownKey& key : config.unknown()) json_at(root, key.pointer) = key.value;
  return root;
}

DsConfig for_trainer(const DsConfig& config) {
  // What the Trainer always fills; the rest of what it owns only matters where the file has it: a
  // section of optimizer or scheduler changes who builds them, and without gradient_clipping
  // DeepSpeed's own default counts (none up to 0.16), which "auto" would replace.
  // Source: transformers/integrations/deepspeed.py:HfTrainerDeepSpeedConfig.trainer_config_process.
  constexpr std::array kAlways = {Knob::train_batch_size,
                                  Knob::train_micro_batch_size_per_gpu,
                                  Knob::gradient_accumulation_steps,
                                  Knob::fp16_enabled,
                                  Knob::bf16_enabled};
  DsConfig result = config;
  for (const KnobRow& row : knob_rows()) {
    if (row.trainer_owned && config.is_set(row.id)) result.set_auto(row.id);
  }
  for (const Knob knob : kAlways) result.set_auto(knob);
  return result;
}

DsConfig in_style(const DsConfig& config, ConfigStyle style) {
  return style == ConfigStyle::hf_trainer ? for_trainer(config) : config;
}

KnobValue to_value(const KnobLiteral& literal) {
  using Kind = KnobLiteral::Kind;
  switch (literal.kind) {
    case Kind::none:
      return Unset{};
    case Kind::boolean:
      return literal.integer != 0;
    case Kind::integer:
      return literal.integer;
    case Kind::real:
      return literal.real;
    case Kind::text:
      return std::string(literal.text);
    case Kind::json:
      return parse_json(literal.text, "knob table").root;
  }
  return Unset{};
}

KnobValue default_value(Knob knob, int stage, const Version& release) {
  return to_value(default_literal(knob, stage, release));
}

KnobValue default_value(Knob knob, int stage, DeepSpeedVersion version) {
  return to_value(default_literal(knob, stage, version));
}

}  // namespace zeroplan
