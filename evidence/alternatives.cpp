#include "evidence/alternatives.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "model/hardware/known_hardware.hpp"
#include "model/implementations/implementations.hpp"

namespace zeroplan::evidence {
namespace {

bool states(const Scenario& scenario, ScenarioKey key) { return scenario.find(key) != nullptr; }

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
          value.is_string() ? value.as_string() : value.dump(),
          [key, value, pointer](Scenario& scenario) {
            scenario.set(key, value, {"alternative", pointer});
          },
          nullptr};
}

constexpr double kSurest = 0.95;  // nothing that is not said is surer

double rank_tokens(const Plan& plan) {
  const Workload& workload = plan.workload;
  return static_cast<double>(workload.micro_batch_size) *
         static_cast<double>(workload.sequence_length) /
         static_cast<double>(workload.sequence_parallel);
}

// The peak of all phases, were there no bytes of `left_out`.
double peak_without(const StepResult& result, std::initializer_list<MemoryCategory> left_out) {
  double most = 0.0;
  for (const CategoryBytes& phase : result.gpu.by_phase) {
    Bytes others = sum(phase);
    for (const MemoryCategory category : left_out) others = others - at(phase, category);
    most = std::max(most, static_cast<double>(others.count()));
  }
  return most;
}

// r^2 / (1 + r^2), r what is needed over the room beside `rest` on the GPU.
double need_weight(double needed, double rest, const StepResult& result) {
  const double gpu = static_cast<double>(result.gpu.capacity.count());
  const double ratio = needed / std::max(gpu - rest, gpu / 20.0);
  return ratio * ratio / (1.0 + ratio * ratio);
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
    stages();
    host();
    return std::move(result_);
  }

 private:
  using Weighted = std::vector<std::pair<Json, double>>;

  void open(ScenarioKey key, const Weighted& values, bool is_quiet = false) {
    if (states(scenario_, key)) return;
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
    if (!litgpt_decides_checkpointing()) {
      const bool checkpoints =
          plan_.workload.activation_checkpointing != ActivationCheckpointing::none;
      open(ScenarioKey::activation_checkpointing, {{checkpoints ? "none" : "full", 0.5}});
    }
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

  // litgpt's scripts have no switch for it: those that finetune checkpoint every block where there
  // is more than one device, and none where there is one (litgpt/finetune/{lora,adapter,full}.py).
  // Those that train from scratch and shard differ among themselves, and are of full weights.
  bool litgpt_decides_checkpointing() const {
    const Workload& workload = plan_.workload;
    const bool finetunes =
        workload.engine == TrainingEngine::fsdp && workload.method != Method::full;
    return workload.implementation == Implementation::litgpt &&
           (finetunes || plan_.cluster.total_gpus() == 1);
  }

  void engine() {
    // A loop over host memory is several times slower than one pass, so that who knows asks for it.
    if (plan_.workload.engine == TrainingEngine::fsdp && plan_.fsdp.offload) {
      open(ScenarioKey::optimizer_implementation, {{"fused", 0.5}});
    }
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
    const double tiles = tiled_mlp_weight(plan_, step_);
    if (tiles > 0.0 && has_tiled_mlp(*plan_.model)) {
      open(ScenarioKey::tiled_mlp, {{true, tiles}}, true);
    }
  }

  // peft's defaults are rank 8 on the attention's inputs; recipes take up to 64 on every layer.
  void adapters() {
    const ExplicitValue* said = scenario_.find(ScenarioKey::method);
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
    const bool written_by_hand = states(scenario_, ScenarioKey::frontend) &&
                                 workload.frontend == Frontend::native &&
                                 workload.implementation == Implementation::hf;
    if (!written_by_hand || states(scenario_, ScenarioKey::outputs_held)) return;
    const auto drop = [](Plan& plan) {
      plan.workload.outputs_held = plan.workload.outputs_kept = false;
    };
    result_.push_back({"outputs", {{0.5, "let go", nullptr, drop}}, true});
  }

  // Who reads memory off one node of a pipeline reads the first node's, which has the first stage:
  // rank 0 prints, and nvidia-smi is run where one logs in.
  void stages() {
    if (plan_.stages.empty()) return;
    const auto change = [](Plan& plan) { plan.shows_first_stage = true; };
    result_.push_back({"stage", {{0.5, "first", nullptr, change}}, true});
  }

  // A machine that is rented by the GPU gives a share of its host, one of one's own all of it;
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
    result_.push_back({"host_memory_bytes", {{0.5, "more", nullptr, change}}, true});
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
  const ExplicitValue* said = scenario.find(ScenarioKey::ds_config);
  if (said == nullptr) return {};
  try {
    return read_ds_config_of(*said);
  } catch (const InputError&) {
    return {};
  }
}

double fused_loss_weight(const Plan& plan, const StepResult& result) {
  const double logits = 2.0 * rank_tokens(plan) * static_cast<double>(plan.model->shape.vocabulary);
  const double rest = peak_without(result, {MemoryCategory::logits});
  return std::clamp(need_weight(6.0 * logits, rest, result), 0.1, kSurest);
}

double tiled_mlp_weight(const Plan& plan, const StepResult& result) {
  constexpr double kFromThird = 0.1;  // r^2 / (1 + r^2) at r = 1/3
  const double width =
      2.0 * rank_tokens(plan) * static_cast<double>(plan.model->shape.intermediate);
  const double rest = peak_without(result, {MemoryCategory::logits, MemoryCategory::activations});
  const double weight = need_weight(6.0 * width, rest, result);
  return weight < kFromThird ? 0.0 : std::min(weight, kSurest);
}

std::vector<OpenKey> open_keys(const Scenario& scenario,
                               const Plan& defaults,
                               const StepResult& result) {
  return OpenKeys(scenario, defaults, result).run();
}

}  // namespace zeroplan::evidence
