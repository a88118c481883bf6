#include "foreign/sharding.hpp"

#include "base/written_names.hpp"

namespace zeroplan::foreign {
namespace {

const Json* find(const Json& section, const std::string& name) {
  const Json* found = section.find("fsdp_" + name);
  return found != nullptr ? found : section.find(name);
}

}  // namespace

bool ShardingWords::read_words(const Setting& setting) {
  const bool off =
      setting.value.is_boolean() ? !setting.value.as_boolean() : names_in(setting.value).empty();
  if (off) return false;
  said_ = setting;
  for (const std::string& word : names_in(setting.value)) {
    read_strategy(word);
    if (word == "offload") offload_ = true;
  }
  return true;
}

// accelerate's names and numbers (FSDP_SHARDING_STRATEGY), and fully_shard's switch.
void ShardingWords::read_strategy(const Json& value) {
  const std::string name = folded(text_of(value), "_-");
  if (name == "shardgradop" || name == "2" || name == "false") stage_ = 2;
  if (name == "noshard" || name == "3") stage_ = 0;
  if (name.starts_with("hybridshard") || name == "4" || name == "5") {
    hybrid_ = true;
    if (name == "hybridshardzero2" || name == "5") stage_ = 2;
  }
}

void ShardingWords::read_section(const Setting& setting) {
  if (!setting.value.is_object()) return;
  said_ = setting;
  for (const char* name : {"offload_params", "cpu_offload"}) {
    const Json* offload = find(setting.value, name);
    if (offload != nullptr && is_on(*offload)) offload_ = true;
  }
  for (const char* name : {"sharding_strategy", "reshard_after_forward"}) {
    if (const Json* kind = find(setting.value, name)) read_strategy(*kind);
  }
}

void ShardingWords::finish(Meaning& meaning) const {
  if (!said_ || meaning.scenario.find(ScenarioKey::ds_config) != nullptr) return;
  if (!stage_ && !offload_ && !hybrid_) return;  // full sharding
  Json zero = Json::object({{"stage", stage_.value_or(3)}});
  if (offload_) zero["offload_param"] = Json::object({{"device", "cpu"}});
  if (hybrid_) meaning.hybrid = *said_;
  meaning.scenario.set(ScenarioKey::ds_config,
                       Json::object({{"zero_optimization", zero}}),
                       {said_->file, said_->name});
}

void finish_hybrid(Meaning& meaning) {
  if (!meaning.hybrid) return;
  const Setting& said = *meaning.hybrid;
  const Processes& processes = meaning.processes;
  const std::int64_t nodes = processes.nodes;
  const std::int64_t per_node = processes.per_node > 0 ? processes.per_node
                                : nodes > 0            ? processes.all / nodes
                                                       : 0;
  const ExplicitValue* config = meaning.scenario.find(ScenarioKey::ds_config);
  if (per_node == 0 || config == nullptr || !config->value.is_object()) {
    meaning.unknown.push_back({said.file, said.line, said.name + ": " + text_of(said.value), ""});
    return;
  }
  Json document = config->value;
  document["zero_optimization"]["mics_shard_size"] = per_node;
  meaning.scenario.set(ScenarioKey::ds_config, document, config->origin);
}

}  // namespace zeroplan::foreign
