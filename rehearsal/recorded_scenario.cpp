#include "rehearsal/recorded_scenario.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "base/written_names.hpp"
#include "model/plan/plan.hpp"
#include "model/releases.hpp"
#include "model/software.hpp"

namespace zeroplan::rehearsal {
namespace {

class Facts {
 public:
  explicit Facts(const std::map<std::string, Json>& facts) : facts_(facts) {}

  const Json* find(const std::string& name) const {
    const auto found = facts_.find(name);
    return found == facts_.end() || found->second.is_null() ? nullptr : &found->second;
  }
  std::string text(const std::string& name) const {
    const Json* found = find(name);
    return found != nullptr && found->is_string() ? found->as_string() : "";
  }
  bool truth(const std::string& name) const {
    const Json* found = find(name);
    return found != nullptr && found->is_boolean() && found->as_boolean();
  }

 private:
  const std::map<std::string, Json>& facts_;
};

// A class's name, or DeepSpeed's of an optimizer, as the scenario's.
std::string optimizer_of(std::string name) {
  name = folded(name, "");
  constexpr std::array kOthers = {"lion", "adafactor", "sgd", "muon"};
  for (const std::string_view other : kOthers) {
    if (name.find(other) != std::string::npos) return std::string(other);
  }
  return name.find("8bit") != std::string::npos ? "adamw8bit" : "adamw";
}

const Json* at(const Json* object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (object == nullptr || !object->is_object()) return nullptr;
    object = object->find(key);
  }
  return object;
}

bool is_true(const Json* value) {
  return value != nullptr && value->is_boolean() && value->as_boolean();
}

std::string precision_of(const Facts& facts) {
  const Json* ds_config = facts.find("ds_config");
  for (const char* type : {"bf16", "fp16"}) {
    if (is_true(at(ds_config, {type, "enabled"}))) return type;
  }
  std::string type = facts.text("mixed_precision");
  const Json* dtypes = facts.find("parameter_dtypes");
  if (type.empty() && ds_config == nullptr && dtypes != nullptr) {
    // In the order of their names; adapters may be wider than the weights that they stand beside.
    const std::vector<Json>& names = dtypes->items();
    const bool told = names.size() == 1 || (names.size() > 1 && facts.find("lora") != nullptr);
    if (told) type = names.front().as_string();
  }
  return type == "bfloat16" ? "bf16" : type == "float16" ? "fp16" : "fp32";
}

std::string attention_of(const Facts& facts) {
  const std::string name = facts.text("attention");
  if (name.find("flash") != std::string::npos) return "flash";
  return name == "eager" ? "eager" : "sdpa";
}

// Nothing that is only known while the program runs, and no empty parts.
Json model_of(const Json& config) {
  Json model = Json::object();
  for (const auto& [key, value] : config.members()) {
    if (!key.starts_with('_') && !value.is_null()) model[key] = value;
  }
  return model;
}

Json ds_config_of(const Json& said) {
  Json config = Json::object();
  // The Trainer says an infinite number of steps where nothing is to be printed.
  const auto is_infinite = [](const Json& value) {
    return value.is_string() && value.as_string() == "inf";
  };
  for (const auto& [key, value] : said.members()) {
    if (!value.is_null() && !is_infinite(value)) config[key] = value;
  }
  return config;
}

// What bitsandbytes keeps the weights in, where they are no plain numbers.
const Json* quantization_of(const Facts& facts) {
  return at(facts.find("model"), {"quantization_config"});
}

Json method_of(const Facts& facts) {
  const Json* said = facts.find("lora");
  if (said == nullptr) return "full";
  Json settings = Json::object();
  for (const auto& [key, value] : said->members()) {
    if (!value.is_null()) settings[key] = value;
  }
  const Json* quantization = quantization_of(facts);
  if (!is_true(at(quantization, {"load_in_4bit"}))) return Json::object({{"lora", settings}});
  const Json* type = at(quantization, {"bnb_4bit_quant_type"});
  settings["quant"] = type != nullptr && type->is_string() ? type->as_string() : "fp4";
  settings["double_quant"] = is_true(at(quantization, {"bnb_4bit_use_double_quant"}));
  return Json::object({{"qlora", settings}});
}

Json workload_of(const Facts& facts) {
  Json workload = Json::object();
  const Json& shape = *facts.find("ids");
  workload["sequence_length"] = shape.items()[1];
  workload["micro_batch_size"] = shape.items()[0];
  if (const Json* trainer = facts.find("trainer")) {
    workload["trainer"] = *trainer;
    if (const Json* teacher = facts.find("teacher")) workload["teacher"] = *teacher;
    // Rows of the model are answers, of a pair two.
    if (const Json* batch = facts.find("per_device_batch")) workload["micro_batch_size"] = *batch;
  }
  const Json* micro_batches = facts.find("gradient_accumulation_steps");
  if (micro_batches == nullptr) micro_batches = facts.find("micro_batches_per_step");
  workload["gradient_accumulation_steps"] =
      micro_batches != nullptr && micro_batches->is_integer()
          ? std::max<std::int64_t>(micro_batches->as_integer(), 1)
          : std::int64_t{1};
  workload["precision"] = precision_of(facts);
  const Json* of_config = at(facts.find("ds_config"), {"optimizer", "type"});
  workload["optimizer"] =
      optimizer_of(of_config != nullptr && of_config->is_string() ? of_config->as_string()
                                                                  : facts.text("optimizer"));
  workload["attention"] = attention_of(facts);
  if (const std::string linear = facts.text("linear_attention"); !linear.empty()) {
    workload["linear_attention"] = linear;
  }
  workload["activation_checkpointing"] = facts.truth("checkpointing") ? "full" : "none";
  if (const Json* reentrant = facts.find("reentrant")) {
    workload["checkpoint_reentrant"] = *reentrant;
  }
  const std::string engine = facts.text("engine");
  workload["engine"] = engine == "deepspeed" ? engine : engine.starts_with("fsdp") ? "fsdp" : "ddp";
  if (engine == "fsdp2") workload["fsdp_version"] = 2;
  workload["frontend"] = facts.text("frontend") == "hf-trainer" ? "hf-trainer" : "native";
  if (facts.text("frontend") == "lightning") {
    workload["outputs_held"] = false;
    if (engine != "deepspeed") workload["gradients_held"] = true;
  } else if (facts.text("frontend") != "hf-trainer") {
    for (const char* seen : {"outputs_held", "outputs_kept"}) {
      if (const Json* value = facts.find(seen)) workload[seen] = *value;
    }
  }
  workload["method"] = method_of(facts);
  for (const char* truth : {"fused_loss", "compile", "expandable_segments", "sync_each_batch"}) {
    if (facts.truth(truth)) workload[truth] = true;
  }
  if (const Json* frozen = facts.find("frozen")) {
    std::string names;
    for (const Json& name : frozen->items()) names += (names.empty() ? "" : ",") + name.as_string();
    workload["freeze"] = names;
  }
  if (const Json* images = facts.find("images")) {
    workload["images"] = images->items()[0];
    workload["image_size"] =
        fmt::format("{}x{}", images->items()[1].as_integer(), images->items()[2].as_integer());
  }
  workload["implementation"] = "hf";
  const Json* dtypes = facts.find("parameter_dtypes");
  const bool mixes = !facts.text("mixed_precision").empty() && facts.find("ds_config") == nullptr;
  if (mixes && facts.find("lora") == nullptr && dtypes != nullptr && dtypes->items().size() == 1) {
    const std::string& type = dtypes->items().front().as_string();
    workload["weights_dtype"] = type == "bfloat16" ? "bf16" : type == "float16" ? "fp16" : "fp32";
  }
  return workload;
}

Json software_of(const Facts& facts) {
  Json software = Json::object();
  for (const char* package : {"torch", "transformers", "deepspeed", "trl"}) {
    const std::string version = facts.text(std::string("version/") + package);
    if (!version.empty()) software[package] = version;
  }
  if (facts.text("engine").starts_with("fsdp") && !facts.text("version/accelerate").empty()) {
    software["accelerate"] = facts.text("version/accelerate");
  }
  return software;
}

}  // namespace

RecordedScenario scenario_of(const ProcessRecord& process, const std::string& cluster) {
  const Facts facts(process.facts);
  RecordedScenario scenario;
  const Json* model = facts.find("model");
  const Json* ids = facts.find("ids");
  if (model == nullptr) {
    scenario.missing = "a model of transformers that was trained";
    return scenario;
  }
  if (ids == nullptr || ids->items().size() != 2) {
    scenario.missing = "the batch that the model got";
    return scenario;
  }
  const Json* images = facts.find("images");
  if (images != nullptr && images->items().size() != 3) {
    scenario.missing = "the sizes of the images, which another process made ready";
    return scenario;
  }
  if (is_true(at(quantization_of(facts), {"load_in_8bit"}))) {
    scenario.missing = "weights that a scenario can state: they are kept in 8 bits";
    return scenario;
  }
  Json document = Json::object();
  document["model"] = model_of(*model);
  document["cluster"] = cluster;
  document["workload"] = workload_of(facts);
  document["software"] = software_of(facts);
  if (const Json* ds_config = facts.find("ds_config")) {
    document["ds_config"] = ds_config_of(*ds_config);
  } else {
    // Engines without a ds_config say their precision as it would: mixed, or of the weights
    // themselves.
    const std::string precision = precision_of(facts);
    Json config = Json::object();
    if (precision != "fp32") {
      Json said = Json::object({{"enabled", true}});
      if (facts.text("mixed_precision").empty()) {
        said[precision + "_master_weights_and_grads"] = true;
        if (precision == "bf16") said["bf16_optimizer_states"] = true;
      }
      config[precision] = said;
    }
    const bool shards = facts.text("engine").starts_with("fsdp");
    const Json* stage = facts.find("fsdp_stage");
    Json zero = Json::object({{"stage", stage != nullptr ? *stage : Json(shards ? 3 : 0)}});
    if (facts.truth("fsdp_offload")) zero["offload_param"] = Json::object({{"device", "cpu"}});
    config["zero_optimization"] = zero;
    document["ds_config"] = config;
  }
  scenario.document = document;
  if (const Json* lengths = facts.find("lengths")) {
    scenario.notes.push_back(
        phrase("the lengths of its batches vary, {} to {} tokens: predicted for the longest",
               lengths->items()[0].dump(),
               lengths->items()[1].dump()));
  }
  const std::string trl = facts.text("version/trl");
  Software software;
  software.trl = parse_version(trl).value_or(Version{});
  const bool scores = facts.find("trainer") != nullptr && facts.find("teacher") == nullptr;
  if (scores && facts.text("version/triton").empty() &&
      software.trl_acts(ReleaseRule::trl_scores_in_chunks)) {
    scenario.notes.push_back(phrase(
        "Triton is not installed: TRL {} scores tokens with PyTorch's operations here, which "
        "take more memory than the kernel that is predicted",
        trl));
  }
  if (facts.truth("paged")) {
    scenario.notes.emplace_back(
        "the optimizer's states are paged: predicted as if they stayed on the GPU");
  }
  return scenario;
}

}  // namespace zeroplan::rehearsal
