#include "foreign/swift.hpp"

#include <algorithm>
#include <string_view>

namespace zeroplan::foreign {
namespace {

// swift/config/zero*.json.
Json zero_of(int stage, bool offload) {
  Json zero = Json::object({{"stage", stage}});
  const auto place = [&](const char* part) {
    zero[part] = Json::object({{"device", offload ? "cpu" : "none"}, {"pin_memory", true}});
  };
  if (stage > 0) place("offload_optimizer");
  if (stage == 3) {
    place("offload_param");
    for (const char* key : {"reduce_bucket_size",
                            "stage3_prefetch_bucket_size",
                            "stage3_param_persistence_threshold"}) {
      zero[key] = "auto";
    }
    for (const char* key :
         {"sub_group_size", "stage3_max_live_parameters", "stage3_max_reuse_distance"}) {
      zero[key] = 1'000'000'000;
    }
    zero["stage3_gather_16bit_weights_on_model_save"] = true;
  } else {
    zero["allgather_partitions"] = true;
    zero["reduce_scatter"] = true;
    for (const char* key : {"allgather_bucket_size", "reduce_bucket_size"}) zero[key] = 200'000'000;
  }
  zero["overlap_comm"] = false;
  zero["contiguous_gradients"] = true;
  return zero;
}

}  // namespace

Json ds_config_of_swift(const std::string& name) {
  constexpr std::string_view kOffload = "_offload";
  std::string_view stage = name;
  const bool offload = stage.ends_with(kOffload);
  if (offload) stage.remove_suffix(kOffload.size());
  const bool known = stage.size() == 5 && stage.starts_with("zero") && stage[4] >= '0' &&
                     stage[4] <= '3' && (!offload || stage[4] >= '2');
  if (!known) return {};
  Json config = Json::object();
  for (const char* key : {"train_batch_size",
                          "train_micro_batch_size_per_gpu",
                          "gradient_accumulation_steps",
                          "gradient_clipping"}) {
    config[key] = "auto";
  }
  for (const char* half : {"fp16", "bf16"}) config[half] = Json::object({{"enabled", "auto"}});
  config["zero_optimization"] = zero_of(stage[4] - '0', offload);
  return config;
}

// swift/arguments/*.py and swift/trainers/arguments.py of 4, beside the rows of
// configs/foreign.json.
void add_defaults_of_swift(Meaning& meaning) {
  // Samples enough for 16 a step.
  const Processes& processes = meaning.processes;
  const std::int64_t ranks = processes.all > 0 ? processes.all
                                               : std::max<std::int64_t>(processes.nodes, 1) *
                                                     std::max<std::int64_t>(processes.per_node, 1);
  const Json& batch = meaning.scenario.find(ScenarioKey::micro_batch_size)->value;
  const std::int64_t samples = ranks * std::max<std::int64_t>(count_of(batch), 1);
  meaning.assume(ScenarioKey::gradient_accumulation_steps,
                 std::max<std::int64_t>(1, (16 + samples - 1) / samples),
                 "gradient_accumulation_steps for 16 samples a step: swift's default");
}

}  // namespace zeroplan::foreign
