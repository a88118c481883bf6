#include "model/plan/said_in_ds_config.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "model/knobs/knobs.hpp"

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

}  // namespace

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

}  // namespace zeroplan
