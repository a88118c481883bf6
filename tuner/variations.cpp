#include "tuner/variations.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/defect.hpp"
#include "base/parallel_for.hpp"
#include "base/phrase_list.hpp"
#include "model/families/hf_config.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::tuner {
namespace {

const Origin kVariation = {"variation", ""};

OffloadDevice device_named(std::string_view text) {
  for (const OffloadDevice device :
       {OffloadDevice::none, OffloadDevice::cpu, OffloadDevice::nvme}) {
    if (name(device) == text) return device;
  }
  ZP_CHECK(false, "an unknown offload device");
  return OffloadDevice::none;
}

bool is_strategy(Knob knob) {
  return knob == Knob::zero_stage || knob == Knob::offload_optimizer_device ||
         knob == Knob::offload_param_device;
}

bool is_batch(ScenarioKey key) {
  return key == ScenarioKey::micro_batch_size || key == ScenarioKey::gradient_accumulation_steps;
}

std::string value_text(const Json& value) {
  if (value.is_null()) return "unset";
  return value.is_string() ? value.as_string() : value.dump();
}

// What the changes make of stage and offload; offloaded parameters need stage 3 and take the
// optimizer's place into account, as the strategies of `fit` do.
void apply(const Change& change, Strategy& strategy) {
  const Knob knob = std::get<Knob>(change.key);
  if (knob == Knob::zero_stage) strategy.stage = static_cast<int>(change.value.as_integer());
  if (knob == Knob::offload_optimizer_device) {
    strategy.offload_optimizer = device_named(change.value.as_string());
  }
  if (knob == Knob::offload_param_device) {
    strategy.offload_parameter = device_named(change.value.as_string());
  }
  if (strategy.stage < 3) strategy.offload_parameter = OffloadDevice::none;
  if (strategy.stage < 1) strategy.offload_optimizer = OffloadDevice::none;
}

// What the changes say, and no more: the other keys of the user's file stay as they are.
void set_devices(const Strategy& strategy, DsConfig& config) {
  config.set(Knob::zero_stage, std::int64_t{strategy.stage});
  const auto device = [&](Knob knob, OffloadDevice on) {
    if (on == OffloadDevice::none) {
      config.unset(knob);
    } else {
      config.set(knob, std::string(name(on)));
    }
  };
  device(Knob::offload_optimizer_device, strategy.offload_optimizer);
  device(Knob::offload_param_device, strategy.offload_parameter);
}

}  // namespace

Strategy strategy_of(const Plan& plan) {
  return {.stage = static_cast<int>(*plan.ds_config.integer(Knob::zero_stage)),
          .offload_optimizer = plan.engine.offload_optimizer.device,
          .offload_parameter = plan.engine.offload_parameter.device,
          .checkpointing = plan.workload.activation_checkpointing,
          .engine = plan.workload.engine};
}

Cluster varied(Cluster cluster, const Variation& variation) {
  if (variation.nodes) cluster.nodes = *variation.nodes;
  if (variation.host_memory) {
    cluster.node.host_memory.value = *variation.host_memory;
    cluster.node.host_memory.relative_sd = 0.0;
    cluster.node.host_memory.confidence = Confidence::stated;
  }
  return cluster;
}

Variation joined(Variation all, const Variation& more) {
  for (const Change& change : more.changes) {
    const auto same = std::find_if(all.changes.begin(), all.changes.end(), [&](const Change& one) {
      return one.key == change.key;
    });
    if (same == all.changes.end()) {
      all.changes.push_back(change);
    } else {
      same->value = change.value;
    }
  }
  if (more.nodes) all.nodes = more.nodes;
  if (more.host_memory) all.host_memory = more.host_memory;
  return all;
}

KnobValue knob_value(Knob knob, const Json& value) {
  switch (knob_row(knob).type) {
    case KnobType::boolean:
      return value.as_boolean();
    case KnobType::integer:
      return value.as_integer();
    case KnobType::real:
      return value.as_number();
    case KnobType::text:
      return value.as_string();
    case KnobType::list:
    case KnobType::object:
      break;
  }
  return value;
}

std::string_view spelling(const Change& change) {
  if (const Knob* knob = std::get_if<Knob>(&change.key)) return pointer_of(*knob);
  return info(std::get<ScenarioKey>(change.key)).flag;
}

Json value_of(const Plan& plan, Knob knob) {
  if (knob == Knob::zero_stage) return Json(std::int64_t{plan.engine.stage});
  if (knob == Knob::offload_optimizer_device) {
    return Json(name(plan.engine.offload_optimizer.device));
  }
  if (knob == Knob::offload_param_device) return Json(name(plan.engine.offload_parameter.device));
  if (plan.ds_config.is_set(knob) && !plan.ds_config.is_auto(knob)) {
    return to_json(plan.ds_config.value(knob));
  }
  return to_json(default_value(knob, plan.engine.stage, plan.software.deepspeed_release));
}

Json value_of(const Plan& plan, ScenarioKey key) {
  const Workload& workload = plan.workload;
  switch (key) {
    case ScenarioKey::micro_batch_size:
      return Json(workload.micro_batch_size);
    case ScenarioKey::gradient_accumulation_steps:
      return Json(workload.gradient_accumulation_steps);
    case ScenarioKey::sequence_length:
      return Json(workload.sequence_length);
    case ScenarioKey::activation_checkpointing:
      return Json(name(kActivationCheckpointingNames, workload.activation_checkpointing));
    case ScenarioKey::attention:
      return Json(name(kAttentionNames, workload.attention));
    case ScenarioKey::linear_attention:
      return Json(name(kLinearAttentionNames, workload.linear_attention));
    case ScenarioKey::precision:
      return Json(name(kPrecisionNames, workload.precision));
    case ScenarioKey::fused_loss:
      return Json(workload.fused_loss);
    case ScenarioKey::expandable_segments:
      return Json(workload.expandable_segments);
    default:
      return {};
  }
}

Phrase describe(const Variation& variation, const Plan& base) {
  std::vector<std::string> changes;
  for (const Change& change : variation.changes) {
    const Json old = std::visit([&](auto key) { return value_of(base, key); }, change.key);
    if (value_text(old) == value_text(change.value)) continue;  // said for the sake of the others
    changes.push_back(std::string(spelling(change)) + " " + value_text(old) + " -> " +
                      value_text(change.value));
  }
  if (variation.nodes) {
    changes.push_back(fmt::format("nodes {} -> {}", base.cluster.nodes, *variation.nodes));
  }
  if (variation.host_memory) {
    changes.push_back(fmt::format("--host-memory {:.0f}GiB -> {:.0f}GiB",
                                  base.cluster.node.host_memory.value.gib(),
                                  variation.host_memory->gib()));
  }
  return phrase_list(changes, "; ");
}

Json model_in_sixteen_bits(const Scenario& scenario) {
  const Json& said = scenario.find(ScenarioKey::model)->value;
  if (said.is_string()) {
    const std::string& text = said.as_string();
    return is_model_name(text) ? Json(text + "-bf16") : Json();
  }
  Json config = said;
  config.erase("quantization_config");
  return config;
}

Variations::Variations(const Scenario& scenario, std::optional<Bytes> capacity, bool host_is_usual)
    : scenario_(scenario), prepared_(prepare(scenario)) {
  if (capacity || host_is_usual) {
    Cluster cluster = *prepared_.cluster;
    if (capacity) cluster.gpu.memory.value = *capacity;
    if (host_is_usual) cluster.node.host_memory.confidence = Confidence::stated;
    prepared_.cluster = std::make_shared<const Cluster>(std::move(cluster));
  }
  base_ = resolve(scenario_, prepared_);
  if (const ExplicitValue* said = scenario.find(ScenarioKey::ds_config)) {
    config_ = read_ds_config_of(*said);
    say_precision(base_, config_);
  }
  if (!config_.is_set(Knob::zero_stage)) {  // which the base took where nobody says
    config_.set(Knob::zero_stage, *base_.ds_config.integer(Knob::zero_stage));
  }
}

Plan Variations::plan(const Variation& variation) const {
  Scenario scenario = scenario_;
  DsConfig config = config_;
  Strategy strategy = strategy_of(base_);
  bool changes_strategy = false;
  bool changes_model = false;
  bool changes_cluster = false;
  for (const Change& change : variation.changes) {
    if (const ScenarioKey* key = std::get_if<ScenarioKey>(&change.key)) {
      scenario.set(*key, change.value, kVariation);
      changes_model = changes_model || *key == ScenarioKey::model;
      changes_cluster = changes_cluster || *key == ScenarioKey::cluster;
      if (!is_batch(*key)) continue;
      scenario.unset(ScenarioKey::global_batch_size);
      // What the file fixed is said by the workload now.
      for (const ScenarioKey batch :
           {ScenarioKey::micro_batch_size, ScenarioKey::gradient_accumulation_steps}) {
        if (scenario.find(batch) == nullptr)
          scenario.set(batch, value_of(base_, batch), kVariation);
      }
      for (const Knob knob : {Knob::train_batch_size,
                              Knob::train_micro_batch_size_per_gpu,
                              Knob::gradient_accumulation_steps}) {
        config.unset(knob);
      }
      continue;
    }
    const Knob knob = std::get<Knob>(change.key);
    if (is_strategy(knob)) {
      apply(change, strategy);
      changes_strategy = true;
    } else {
      config.set(knob, knob_value(knob, change.value));
    }
  }
  if (changes_strategy) set_devices(strategy, config);
  Prepared prepared = prepared_;
  if (changes_model || changes_cluster) {
    const Prepared other = prepare(scenario);
    prepared.model = other.model;
    prepared.model_with_fused_experts = other.model_with_fused_experts;
    if (changes_cluster) prepared.cluster = other.cluster;
  }
  prepared.ds_config = std::make_shared<const DsConfig>(std::move(config));
  if (variation.nodes || variation.host_memory) {
    prepared.cluster = std::make_shared<const Cluster>(varied(*prepared_.cluster, variation));
  }
  return resolve(scenario, prepared);
}

std::vector<VariedResult> Variations::simulate_all(std::span<const Variation> variations,
                                                   const PredictOptions& options,
                                                   const Deadline& deadline) const {
  std::vector<VariedResult> results(variations.size());
  parallel_for(variations.size(), machine_threads(), [&](std::size_t i) {
    if (deadline.over()) return;
    try {
      const Phrase defect = defect_in([&] {
        results[i].result =
            simulator::simulate(plan(variations[i]), {.predict = options, .other_networks = false});
      });
      results[i].refusal = defect.english();
    } catch (const InputError& error) {
      results[i].refusal = error.what();  // a value that this run cannot have
    }
  });
  return results;
}

}  // namespace zeroplan::tuner
