#include "model/plan/scenario_reader.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <string>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "model/knobs/knobs.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_values.hpp"
#include "model/plan/spellings.hpp"

namespace zeroplan {

namespace {

Json* at(Json& document, std::string_view pointer) {
  Json* value = &document;
  while (value != nullptr && !pointer.empty()) {
    const std::size_t end = std::min(pointer.find('/', 1), pointer.size());
    value = value->find(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
  }
  return value;
}

// Replaces what is there; what the document does not say the workload's value says.
void replace(Json& document, Knob knob, const Scenario& flags, ScenarioKey key) {
  const ExplicitValue* said = flags.find(key);
  Json* value = at(document, pointer_of(knob));
  if (said != nullptr && value != nullptr) *value = said->value;
}

void replace_precision(Json& document, const std::string& precision) {
  struct Section {
    std::string_view name;
    Knob knob;
  };
  constexpr std::array kSections = {Section{"bf16", Knob::bf16_enabled},
                                    Section{"fp16", Knob::fp16_enabled}};
  for (const Section& section : kSections) {
    const std::string_view pointer = pointer_of(section.knob);
    const std::string_view name = pointer.substr(1, pointer.rfind('/') - 1);
    const bool on = precision == section.name;
    if (!on && at(document, pointer) == nullptr) continue;
    document[name][pointer.substr(pointer.rfind('/') + 1)] = Json(on);
  }
}

bool says(const Json* value) { return value != nullptr && value->is_integer(); }

// `result` has the flags' values already; its ds_config is changed where it is an inline object.
void say_in_ds_config(const Scenario& flags, Scenario& result) {
  const ExplicitValue* said = result.find(ScenarioKey::ds_config);
  if (said == nullptr || !said->value.is_object()) return;
  Json document = said->value;
  replace(document, Knob::train_micro_batch_size_per_gpu, flags, ScenarioKey::micro_batch_size);
  replace(
      document, Knob::gradient_accumulation_steps, flags, ScenarioKey::gradient_accumulation_steps);
  if (const ExplicitValue* precision = flags.find(ScenarioKey::precision)) {
    replace_precision(document, precision->value.as_string());
  }
  if (flags.find(ScenarioKey::optimizer) != nullptr) {
    document.erase(pointer_of(Knob::optimizer_type)
                       .substr(1, pointer_of(Knob::optimizer_type).rfind('/') - 1));
  }
  constexpr std::array kCounts = {ScenarioKey::cluster,
                                  ScenarioKey::micro_batch_size,
                                  ScenarioKey::gradient_accumulation_steps,
                                  ScenarioKey::pipeline_parallel,
                                  ScenarioKey::tensor_parallel,
                                  ScenarioKey::sequence_parallel};
  const bool counts_change = std::any_of(
      kCounts.begin(), kCounts.end(), [&](ScenarioKey key) { return flags.find(key) != nullptr; });
  const bool both = says(at(document, pointer_of(Knob::train_micro_batch_size_per_gpu))) &&
                    says(at(document, pointer_of(Knob::gradient_accumulation_steps)));
  if (counts_change && both) document.erase(pointer_of(Knob::train_batch_size).substr(1));
  const Origin origin = said->origin;
  result.set(ScenarioKey::ds_config, std::move(document), origin);
}

}  // namespace

Scenario overlay(const Scenario& base, const Scenario& flags) {
  Scenario result = base;
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    if (const ExplicitValue* said = flags.find(row.key))
      result.set(row.key, said->value, said->origin);
  }
  if (flags.find(ScenarioKey::ds_config) == nullptr) say_in_ds_config(flags, result);
  return result;
}

// --- documents and flags
// ---------------------------------------------------------------------------------------------

namespace {

const Json* at_pointer(const Json& document, std::string_view pointer) {
  const Json* value = &document;
  while (!pointer.empty() && value != nullptr) {
    const std::size_t end = pointer.find('/', 1);
    value = value->find(pointer.substr(1, end == std::string_view::npos ? end : end - 1));
    pointer = end == std::string_view::npos ? "" : pointer.substr(end);
  }
  return value;
}

// Paths in a scenario file are meant from its folder.
void rebase_path(ScenarioKey key, Json& value, const std::string& file) {
  const bool may_be_path = key == ScenarioKey::model || key == ScenarioKey::cluster ||
                           key == ScenarioKey::profile || key == ScenarioKey::ds_config;
  if (!may_be_path || !value.is_string()) return;
  const std::filesystem::path path = value.as_string();
  if (path.is_absolute()) return;
  std::error_code error;
  const std::filesystem::path beside = std::filesystem::path(file).parent_path() / path;
  if (std::filesystem::exists(beside, error) && !std::filesystem::exists(path, error)) {
    value = Json(beside.string());
  }
}

void report_unknown(const Json& section,
                    const std::string& prefix,
                    const std::string& file,
                    std::vector<Diagnostic>& problems) {
  std::vector<std::string_view> known;
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    if (row.pointer.substr(0, prefix.size()) != prefix) continue;
    const std::string_view rest = row.pointer.substr(prefix.size() + 1);
    known.push_back(rest.substr(0, rest.find('/')));
  }
  for (const auto& [key, value] : section.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end() || value.is_null()) continue;
    if (problems.size() >= kMostProblems) return;
    problems.push_back({file,
                        prefix + "/" + pointer_token(key),
                        "a key of the scenario document",
                        in_quotes(key),
                        did_you_mean(key, known)});
  }
}

void require_object(const Json& document,
                    std::string_view pointer,
                    const std::string& file,
                    std::vector<Diagnostic>& problems) {
  const Json* section = at_pointer(document, pointer);
  if (section != nullptr && !section->is_object() && !section->is_null()) {
    problems.push_back({file, std::string(pointer), "an object", described(*section), ""});
  }
}

}  // namespace

Scenario parse_scenario(const Json& document, const std::string& file) {
  if (!document.is_object()) {
    throw InputError({file, "", "a scenario object", described(document), ""});
  }
  std::vector<Diagnostic> problems;
  require_object(document, "/workload", file, problems);
  require_object(document, "/software", file, problems);
  report_unknown(document, "", file, problems);
  for (const std::string section : {"/workload", "/software"}) {
    if (const Json* found = at_pointer(document, section)) {
      report_unknown(*found, section, file, problems);
    }
  }
  Scenario scenario;
  for (const ScenarioKeyInfo& row : kScenarioKeys) {
    const Json* value = at_pointer(document, row.pointer);
    if (value == nullptr || value->is_null()) continue;
    Diagnostic problem{file, std::string(row.pointer), "", "", ""};
    std::optional<Json> good = checked(row, *value, problem);
    if (!good) {
      problems.push_back(problem);
      continue;
    }
    rebase_path(row.key, *good, file);
    scenario.set(row.key, std::move(*good), {file, std::string(row.pointer)});
  }
  if (!problems.empty()) throw InputError(problems);
  return scenario;
}

Scenario parse_scenario(const JsonDocument& document) {
  std::vector<Diagnostic> problems = duplicate_key_problems(document);
  if (!problems.empty()) throw InputError(std::move(problems));
  return parse_scenario(document.root, document.file);
}

Json parse_flag(const ScenarioKeyInfo& key, std::string_view text, const std::string& said_as) {
  const std::string pointer = said_as.empty() ? std::string(key.flag) : said_as;
  Json value{std::string(text)};
  if (key.type == ScenarioType::integer) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) value = Json(number);
  } else if (key.type == ScenarioType::boolean) {
    if (const auto on = parse_switch(text)) value = Json(*on);
  } else if (key.type == ScenarioType::objects) {
    value = objects_of_flag(text, "command line " + pointer);
  } else if (key.type == ScenarioType::text_or_object && text.substr(0, 1) == "{") {
    JsonDocument document = parse_json(text, "command line " + pointer);
    std::vector<Diagnostic> problems = duplicate_key_problems(document);
    if (!problems.empty()) throw InputError(std::move(problems));
    value = std::move(document.root);
  }
  Diagnostic problem{"command line", pointer, "", "", ""};
  std::optional<Json> good = checked(key, value, problem);
  if (!good) throw InputError(problem);
  return *good;
}

}  // namespace zeroplan
