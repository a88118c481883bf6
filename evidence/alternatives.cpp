#include "evidence/alternatives.hpp"

#include <algorithm>
#include <utility>

namespace zeroplan {
namespace {

bool is_said(const Scenario& scenario, ScenarioKey key) { return scenario.find(key) != nullptr; }

bool states_precision(const DsConfig& config) {
  return config.boolean(Knob::fp16_enabled).value_or(false) ||
         config.boolean(Knob::bf16_enabled).value_or(false);
}

Json ds_config_of_stage(int stage) {
  return Json::object({{"zero_optimization", Json::object({{"stage", stage}})}});
}

std::string short_name(ScenarioKey key) {
  const std::string_view pointer = info(key).pointer;
  return std::string(pointer.substr(pointer.rfind('/') + 1));
}

Alternative value_of(ScenarioKey key, const Json& value, double weight) {
  const std::string pointer(info(key).pointer);
  return {weight,
          [key, value, pointer](Scenario& scenario) {
            scenario.set(key, value, {"alternative", pointer});
          },
          nullptr};
}

// Collects what is open.
class OpenKeys {
 public:
  OpenKeys(const Scenario& scenario, const Plan& defaults, const StepResult& result)
      : scenario_(scenario), plan_(defaults), step_(result), config_(ds_config_of(scenario)) {}

  std::vector<OpenKey> run() {
    training();
    engine();
    software();
    adapters();
    loop();
    host();
    return std::move(result_);
  }

 private:
  using Weighted = std::vector<std::pair<Json, double>>;

  void open(ScenarioKey key, const Weighted& values, bool is_quiet = false) {
    if (is_said(scenario_, key)) return;
    OpenKey open{short_name(key), {}, is_quiet};
    for (const auto& [value, weight] : values) {
      open.alternatives.push_back(value_of(key, value, weight));
    }
    result_.push_back(std::move(open));
  }

  void training() {
    const Attention usual = plan_.workload.attention;
    Weighted others;
    for (const Attention other : {Attention::eager, Attention::sdpa, Attention::flash}) {
      if (other != usual)
        others.emplace_back(Json(std::string(name(kAttentionNames, other))), 0.25);
    }
    open(ScenarioKey::attention, others);
    const bool checkpoints =
        plan_.workload.activation_checkpointing != ActivationCheckpointing::none;
    open(ScenarioKey::activation_checkpointing, {{checkpoints ? "none" : "full", 0.5}});
    if (!states_precision(config_)) {
      Weighted precisions;
      for (const Precision other : {Precision::bf16, Precision::fp16, Precision::fp32}) {
        if (other == plan_.workload.precision) continue;
        precisions.emplace_back(Json(std::string(name(kPrecisionNames, other))), 0.2);
      }
      open(ScenarioKey::precision, precisions);
    }
    if (!config_.integer(Knob::gradient_accumulation_steps) &&
        !config_.integer(Knob::train_batch_size)) {
      open(ScenarioKey::gradient_accumulation_steps, {{8, 0.5}});
    }
    open(ScenarioKey::frontend, {{"native", 0.5}});
  }

  void engine() {
    if (!runs_deepspeed(plan_.workload)) return;
    open(ScenarioKey::ds_config,
         {{ds_config_of_stage(0), 0.1},
          {ds_config_of_stage(1), 0.15},
          {ds_config_of_stage(2), 0.35}});
    open(ScenarioKey::deepspeed_version, {{"0.12.6", 0.5}}, true);
  }

  void software() {
    if (plan_.workload.implementation != Implementation::hf) return;
    open(ScenarioKey::transformers_version, {{"4.40.0", 0.5}}, true);
    // Other families have no patch in Liger, and their classes no fused loss of their own.
    if (plan_.model->implementation_family == "llama") {
      open(ScenarioKey::fused_loss, {{true, fused_loss_weight(plan_, step_)}}, true);
    }
  }

  // peft's defaults are rank 8 on the attention's inputs; recipes take up to 64 on every layer.
  void adapters() {
    const Said* said = scenario_.find(ScenarioKey::method);
    if (said == nullptr || plan_.workload.method != Method::lora) return;
    if (plan_.model->implementation_family != "llama") return;
    const Json* lora = said->value.is_object() ? said->value.find("lora") : nullptr;
    const bool has_rank = lora != nullptr && lora->find("rank") != nullptr;
    const bool has_targets = lora != nullptr && lora->find("targets") != nullptr;
    if (has_rank && has_targets) return;
    Json value = lora != nullptr ? *lora : Json::object();
    if (!has_rank) value["rank"] = 64;
    if (!has_targets) {
      Json targets = Json::array();
      for (const char* layer :
           {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}) {
        targets.push_back(layer);
      }
      value["targets"] = targets;
    }
    result_.push_back({short_name(ScenarioKey::method),
                       {value_of(ScenarioKey::method, Json::object({{"lora", value}}), 0.5)},
                       false});
  }

  // `loss = model(**batch).loss` inside a function lets the outputs die, `outputs = model(**batch)`
  // beside backward() holds them.
  void loop() {
    const Workload& workload = plan_.workload;
    const bool written_by_hand = is_said(scenario_, ScenarioKey::frontend) &&
                                 workload.frontend == Frontend::native &&
                                 workload.implementation == Implementation::hf;
    if (!written_by_hand) return;
    const auto drop = [](Plan& plan) { plan.workload.outputs_held = false; };
    result_.push_back({"outputs", {{0.5, nullptr, drop}}, true});
  }

  // A machine that is rented by the card gives a share of its host, one of one's own all of it;
  // workstations are sold with once and with twice as much.
  void host() {
    const Quantity<Bytes>& memory = plan_.cluster.node.host_memory;
    if (memory.confidence != Confidence::assumed) return;
    const std::int64_t gpus = plan_.cluster.gpus_per_node();
    Bytes whole = memory.value * 2;
    for (const NodeProfile& machine :
         {usual_node(plan_.cluster.gpu, gpus), node_of_key(plan_.cluster.gpu.usual_node)}) {
      const bool is_part = machine.divisible && !machine.per_gpu && machine.gpus_per_node > gpus;
      if (is_part && machine.host_memory) whole = std::max(whole, machine.host_memory->value);
    }
    const auto change = [whole](Plan& plan) { plan.cluster.node.host_memory.value = whole; };
    result_.push_back({"host_memory_bytes", {{0.5, nullptr, change}}, true});
  }

  const Scenario& scenario_;
  const Plan& plan_;
  const StepResult& step_;
  DsConfig config_;
  std::vector<OpenKey> result_;
};

}  // namespace

double OpenKey::default_weight() const {
  double rest = 1.0;
  for (const Alternative& alternative : alternatives) rest -= alternative.weight;
  return rest;
}

DsConfig ds_config_of(const Scenario& scenario) {
  const Said* said = scenario.find(ScenarioKey::ds_config);
  if (said == nullptr) return {};
  try {
    return read_ds_config_of(*said);
  } catch (const InputError&) {
    return {};
  }
}

double fused_loss_weight(const Plan& plan, const StepResult& result) {
  const Workload& workload = plan.workload;
  const double tokens = static_cast<double>(workload.micro_batch_size) *
                        static_cast<double>(workload.sequence_length) /
                        static_cast<double>(workload.sequence_parallel);
  const double logits = 2.0 * tokens * static_cast<double>(plan.model->shape.vocabulary);
  const double card = static_cast<double>(result.gpu.capacity.count());
  double rest = 0.0;
  for (const CategoryBytes& phase : result.gpu.by_phase) {
    const Bytes others = sum(phase) - at(phase, MemoryCategory::logits);
    rest = std::max(rest, static_cast<double>(others.count()));
  }
  const double ratio = 6.0 * logits / std::max(card - rest, card / 20.0);
  const double square = ratio * ratio;
  return std::clamp(square / (1.0 + square), 0.1, 0.95);
}

std::vector<OpenKey> open_keys(const Scenario& scenario,
                               const Plan& defaults,
                               const StepResult& result) {
  return OpenKeys(scenario, defaults, result).run();
}

}  // namespace zeroplan
