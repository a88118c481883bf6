#include "tuner/strategies.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "model/engine/fetch_coordinator.hpp"
#include "model/plan/frontend_hf.hpp"

namespace zeroplan::tuner {
namespace {

constexpr const char* kNvmePath = "/local_nvme";  // where nobody named a folder
// Sub-groups of 10^8 elements keep the NVMe swap buffers (4 x sub-group x 4 bytes) at 1.6 GB a
// rank.
constexpr std::int64_t kNvmeSubGroup = 100'000'000;
constexpr std::int64_t kSmallSubGroup = 10'000'000;

// The name under which DeepSpeed builds it (runtime/engine.py _configure_basic_optimizer); empty
// for optimizers of transformers and bitsandbytes, which only the script can build.
std::string_view deepspeed_type(OptimizerName optimizer) {
  switch (optimizer) {
    case OptimizerName::adamw:
      return "AdamW";
    case OptimizerName::adam:
      return "Adam";
    case OptimizerName::lion:
      return "Lion";
    case OptimizerName::sgd:
      return "SGD";
    case OptimizerName::muon:
      return "Muon";
    case OptimizerName::adafactor:
    case OptimizerName::adamw8bit:
      return "";
  }
  return "";
}

std::optional<OptimizerName> optimizer_said(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::optimizer);
  if (said == nullptr) return std::nullopt;
  return find(kOptimizerNames, std::string_view(said->value.as_string()));
}

// A file of our own: an optimizer that DeepSpeed can fuse or offload, and sizes that follow the
// model's hidden size as the Trainer's `auto` does.
DsConfig small_config(std::optional<OptimizerName> optimizer) {
  DsConfig config;
  config.set_auto(Knob::gradient_clipping);
  if (!optimizer) return config;
  const std::string_view type = deepspeed_type(*optimizer);
  if (type.empty()) {
    // The Trainer builds it; DeepSpeed has to be told that this is meant.
    config.set(Knob::zero_allow_untested_optimizer, true);
    return config;
  }
  config.set(Knob::optimizer_type, std::string(type));
  for (const Knob knob : {Knob::optimizer_lr, Knob::optimizer_weight_decay}) config.set_auto(knob);
  if (optimizer == OptimizerName::sgd) return config;
  config.set_auto(Knob::optimizer_betas);
  if (optimizer != OptimizerName::lion) config.set_auto(Knob::optimizer_eps);
  return config;
}

// A config without a hidden size (of an encoder and a decoder apart) leaves DeepSpeed's sizes: the
// Trainer refuses to fill in `auto`.
void add_bucket_defaults(const Strategy& strategy, const Model& model, DsConfig& config) {
  if (strategy.stage == 0) return;
  const bool fills_in = model.shape.hidden > 0;
  config.set(Knob::overlap_comm, true);
  config.set(Knob::contiguous_gradients, true);
  if (fills_in) config.set_auto(Knob::reduce_bucket_size);
  if (strategy.stage != 3) return;
  if (fills_in) {
    config.set_auto(Knob::stage3_prefetch_bucket_size);
    config.set_auto(Knob::stage3_param_persistence_threshold);
  }
  config.set(Knob::stage3_gather_16bit_weights_on_model_save, true);
}

std::vector<Knob> offload_knobs() {
  std::vector<Knob> knobs;
  for (const KnobRow& row : knob_rows()) {
    const bool offload = row.pointer.find("/offload_param/") != std::string_view::npos ||
                         row.pointer.find("/offload_optimizer/") != std::string_view::npos;
    if (offload) knobs.push_back(row.id);
  }
  return knobs;
}

void clear_offload(DsConfig& config) {
  static const std::vector<Knob> kOffload = offload_knobs();
  for (const Knob knob : kOffload) config.unset(knob);
}

// The folders of the user's file, for every strategy that swaps there: what one section names is
// meant for the other, too.
struct SwapFolders {
  explicit SwapFolders(const DsConfig* base) {
    if (base == nullptr) return;
    optimizer = base->text(Knob::offload_optimizer_nvme_path);
    parameter = base->text(Knob::offload_param_nvme_path);
    if (!optimizer) optimizer = parameter;
    if (!parameter) parameter = optimizer;
  }
  std::optional<std::string> optimizer, parameter;
};

void set_offload(const Strategy& strategy,
                 const Model& model,
                 const SwapFolders& folders,
                 DsConfig& config) {
  if (strategy.offload_optimizer != OffloadDevice::none) {
    config.set(Knob::offload_optimizer_device, std::string(name(strategy.offload_optimizer)));
    config.set(Knob::offload_optimizer_pin_memory, strategy.pinned);
    if (strategy.offload_optimizer == OffloadDevice::nvme) {
      config.set(Knob::offload_optimizer_nvme_path, folders.optimizer.value_or(kNvmePath));
      config.set(Knob::sub_group_size, kNvmeSubGroup);
    }
  }
  if (strategy.offload_parameter != OffloadDevice::none) {
    config.set(Knob::offload_param_device, std::string(name(strategy.offload_parameter)));
    config.set(Knob::offload_param_pin_memory, strategy.pinned);
    if (strategy.offload_parameter == OffloadDevice::nvme) {
      config.set(Knob::offload_param_nvme_path, folders.parameter.value_or(kNvmePath));
      constexpr std::int64_t kDefaultBuffer = 100'000'000;
      config.set(Knob::offload_param_buffer_size,
                 std::max(kDefaultBuffer, largest_parameter(model)));
      // What is kept for reuse keeps its buffer, and the default's five are soon used up.
      config.set(Knob::stage3_max_reuse_distance, std::int64_t{0});
    }
  }
  if (strategy.small_sub_groups) config.set(Knob::sub_group_size, kSmallSubGroup);
}

}  // namespace

std::int64_t largest_parameter(const Model& model) {
  std::int64_t largest = 0;
  for (const Parameter& parameter : model.parameters) {
    largest = std::max(largest, parameter.numel.count());
  }
  return largest;
}

std::string_view name(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::none:
      return "none";
    case OffloadDevice::cpu:
      return "cpu";
    case OffloadDevice::nvme:
      return "nvme";
  }
  return "";
}

std::string sharding_name(const Strategy& strategy) {
  if (strategy.engine == TrainingEngine::ddp) return "none";
  if (strategy.engine != TrainingEngine::fsdp) return std::to_string(strategy.stage);
  return strategy.stage == 3 ? "FULL_SHARD" : strategy.stage == 0 ? "NO_SHARD" : "SHARD_GRAD_OP";
}

// Offloaded, and not to the CPU.
static bool on_nvme(OffloadDevice device) { return device == OffloadDevice::nvme; }

Phrase describe(const Strategy& strategy) {
  Phrase text = phrase("ZeRO-{}", strategy.stage);
  if (strategy.engine == TrainingEngine::ddp) text = "DDP";
  if (strategy.engine == TrainingEngine::fsdp) text = phrase("FSDP {}", sharding_name(strategy));
  const OffloadDevice optimizer = strategy.offload_optimizer;
  const OffloadDevice parameters = strategy.offload_parameter;
  if (optimizer == parameters && optimizer != OffloadDevice::none) {
    text += on_nvme(optimizer) ? ", optimizer and parameters on nvme"
                               : ", optimizer and parameters on cpu";
  } else {
    if (optimizer != OffloadDevice::none) {
      text += on_nvme(optimizer) ? ", optimizer on nvme" : ", optimizer on cpu";
    }
    if (parameters != OffloadDevice::none) {
      text += on_nvme(parameters) ? ", parameters on nvme" : ", parameters on cpu";
    }
  }
  if (strategy.checkpointing != ActivationCheckpointing::none) {
    text += strategy.checkpointing == ActivationCheckpointing::full
                ? ", full activation checkpointing"
                : ", selective activation checkpointing";
  }
  if (!strategy.pinned) text = phrase("{}, pin_memory false", text);
  if (strategy.small_sub_groups) text += ", sub_group_size 1e7";
  return text;
}

bool same_placement(const Strategy& a, const Strategy& b) {
  return a.stage == b.stage && a.offload_optimizer == b.offload_optimizer &&
         a.offload_parameter == b.offload_parameter;
}

std::vector<Strategy> with_less_host_memory(const Strategy& strategy, const DsConfig* base) {
  const auto said = [&](Knob knob) { return base != nullptr && base->is_set(knob); };
  const bool pins =
      !said(Knob::offload_optimizer_pin_memory) && !said(Knob::offload_param_pin_memory);
  const bool divides = strategy.stage == 3 && !said(Knob::sub_group_size);
  std::vector<Strategy> leaner;
  if (offload_of(strategy) == 0) return leaner;
  for (const auto& [unpinned, small] : {std::pair(true, false), {false, true}, {true, true}}) {
    if ((unpinned && !pins) || (small && !divides)) continue;
    Strategy one = strategy;
    one.pinned = !unpinned;
    one.small_sub_groups = small;
    leaner.push_back(one);
  }
  return leaner;
}

int offload_of(const Strategy& strategy) {
  const auto distance = [](OffloadDevice device) {
    return device == OffloadDevice::none ? 0 : device == OffloadDevice::cpu ? 1 : 2;
  };
  return distance(strategy.offload_optimizer) + distance(strategy.offload_parameter);
}

bool offloads_to_host(const Strategy& strategy) {
  return strategy.offload_optimizer == OffloadDevice::cpu ||
         strategy.offload_parameter == OffloadDevice::cpu;
}

std::optional<bool> lighter_reentrance(const Plan& plan) {
  const Workload& workload = plan.workload;
  if (!runs_deepspeed(workload)) return std::nullopt;
  if (workload.method == Method::qlora && !workload.checkpoint_reentrant) return true;
  const bool held = workload.method == Method::lora && workload.checkpoint_reentrant &&
                    FetchCoordinator::holds_recomputed_weights(plan.engine);
  return held ? std::optional(false) : std::nullopt;
}

namespace {

struct StageAndOffload {
  int stage = 0;
  OffloadDevice optimizer = OffloadDevice::none;
  OffloadDevice parameter = OffloadDevice::none;
};

std::vector<StageAndOffload> stages_and_offloads(TrainingEngine engine, bool has_pipeline) {
  constexpr OffloadDevice kNone = OffloadDevice::none;
  constexpr OffloadDevice kCpu = OffloadDevice::cpu;
  constexpr OffloadDevice kNvme = OffloadDevice::nvme;
  if (engine == TrainingEngine::ddp) return {{0, kNone, kNone}};
  if (engine == TrainingEngine::fsdp)
    return {{2, kNone, kNone}, {3, kNone, kNone}, {3, kCpu, kCpu}};
  std::vector<StageAndOffload> found = {{0, kNone, kNone},
                                        {1, kNone, kNone},
                                        {1, kCpu, kNone},
                                        {2, kNone, kNone},
                                        {2, kCpu, kNone},
                                        {3, kNone, kNone},
                                        {3, kCpu, kNone},
                                        {3, kNone, kCpu},
                                        {3, kCpu, kCpu},
                                        {3, kNvme, kNone},
                                        {3, kNvme, kNvme}};
  // pipe/engine.py PipelineEngine.__init__
  if (has_pipeline) std::erase_if(found, [](const StageAndOffload& one) { return one.stage > 1; });
  return found;
}

TrainingEngine engine_of(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::engine);
  if (said == nullptr) return TrainingEngine::deepspeed;
  return find(kTrainingEngineNames, said->value.as_string()).value_or(TrainingEngine::deepspeed);
}

}  // namespace

std::optional<std::int64_t> stage_alone(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::ds_config);
  if (said == nullptr || said->value.members().size() != 1) return std::nullopt;
  const Json* zero = said->value.find("zero_optimization");
  if (zero == nullptr || zero->members().size() != 1) return std::nullopt;
  const Json* stage = zero->find("stage");
  if (stage == nullptr || !stage->is_integer()) return std::nullopt;
  return stage->as_integer();
}

std::vector<ActivationCheckpointing> checkpointings(const Scenario& scenario) {
  if (const ExplicitValue* said = scenario.find(ScenarioKey::activation_checkpointing)) {
    return {*find(kActivationCheckpointingNames, said->value.as_string())};
  }
  const ExplicitValue* offload = scenario.find(ScenarioKey::activation_offload);
  const bool checkpoints = offload != nullptr && offload->value.as_string() == "cpu";
  if (checkpoints) return {ActivationCheckpointing::full};
  return {ActivationCheckpointing::none, ActivationCheckpointing::full};
}

bool may_leave_deepspeed(const Scenario& scenario, const Plan& plan) {
  const Workload& workload = plan.workload;
  return scenario.find(ScenarioKey::engine) == nullptr && plan.cluster.total_gpus() == 1 &&
         workload.engine == TrainingEngine::deepspeed &&
         workload.frontend == Frontend::hf_trainer &&
         workload.implementation == Implementation::hf && plan.trainer == nullptr &&
         plan.beside == nullptr;
}

std::vector<Strategy> strategies(const Scenario& scenario) {
  const std::vector<ActivationCheckpointing> checkpointing = checkpointings(scenario);
  const ExplicitValue* stages = scenario.find(ScenarioKey::pipeline_parallel);
  const bool has_pipeline = stages != nullptr && stages->value.as_integer() > 1;
  const TrainingEngine engine = engine_of(scenario);
  std::vector<Strategy> result;
  for (const StageAndOffload& states : stages_and_offloads(engine, has_pipeline)) {
    for (const ActivationCheckpointing kind : checkpointing) {
      result.push_back({.stage = states.stage,
                        .offload_optimizer = states.optimizer,
                        .offload_parameter = states.parameter,
                        .checkpointing = kind,
                        .engine = engine});
    }
  }
  // Beside an offloaded optimizer accelerate puts DeepSpeed's CPU Adam in the place of what
  // DeepSpeed does not build (lint: replaced-optimizer): another one would train than is planned.
  const std::optional<OptimizerName> named = optimizer_said(scenario);
  if (engine == TrainingEngine::deepspeed && named && deepspeed_type(*named).empty()) {
    std::erase_if(result, [](const Strategy& strategy) {
      return strategy.offload_optimizer != OffloadDevice::none;
    });
  }
  if (engine == TrainingEngine::deepspeed && named) {
    std::erase_if(result,
                  [&](const Strategy& strategy) { return !does_its_update(strategy, *named); });
  }
  if (const std::optional<std::int64_t> stage = stage_alone(scenario)) {
    std::erase_if(result, [&](const Strategy& strategy) { return strategy.stage != *stage; });
    if (result.empty()) {
      const Origin& origin = scenario.find(ScenarioKey::ds_config)->origin;
      const bool is_muon = named == OptimizerName::muon;
      throw InputError({origin.file,
                        origin.pointer,
                        is_muon ? "stage 1 or 2: Muon's update at stage 3 is not modelled"
                                : "a stage that the engine has",
                        std::to_string(*stage),
                        ""});
    }
  }
  return result;
}

bool does_its_update(const Strategy& strategy, OptimizerName optimizer) {
  if (optimizer != OptimizerName::muon) return true;
  const bool stays = strategy.offload_optimizer == OffloadDevice::none;
  return stays && (strategy.stage == 1 || strategy.stage == 2);
}

std::int64_t least_stage(const Scenario& scenario) {
  return optimizer_said(scenario) == OptimizerName::muon ? 1 : 0;
}

DsConfig strategy_config(const Strategy& strategy,
                         const DsConfig* base,
                         const Model& model,
                         std::optional<OptimizerName> optimizer,
                         Frontend frontend) {
  const bool for_torch = is_torch_engine(strategy.engine);
  DsConfig config = base != nullptr ? *base : for_torch ? DsConfig() : small_config(optimizer);
  config.set(Knob::zero_stage, std::int64_t{strategy.stage});
  if (base == nullptr && !for_torch) add_bucket_defaults(strategy, model, config);
  if (base == nullptr && frontend == Frontend::native) fill_sizes(config, model.shape.hidden);
  clear_offload(config);
  set_offload(strategy, model, SwapFolders(base), config);
  return config;
}

Frontend frontend_of(const Scenario& scenario) {
  const ExplicitValue* said = scenario.find(ScenarioKey::frontend);
  const bool native =
      said != nullptr && said->value == Json(name(kFrontendNames, Frontend::native));
  return native ? Frontend::native : Frontend::hf_trainer;
}

int non_default_knobs(const DsConfig& config) {
  const int stage = static_cast<int>(config.integer(Knob::zero_stage).value_or(0));
  int count = 0;
  for (const auto& [knob, value] : config.values()) {
    if (value != default_value(knob, stage, kNewestDeepSpeed)) ++count;
  }
  return count;
}

}  // namespace zeroplan::tuner
