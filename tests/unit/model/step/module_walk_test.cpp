// The order in which stage 3's hooks see modules when a block is recomputed, and what is gathered
// for that.
#include "model/step/module_walk.hpp"

#include <cstdint>
#include <string>

#include "model/implementations/implementations.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/step/graph_options.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Plan plan_of(bool reentrant,
             const char* release,
             const char* method,
             std::int64_t max_live = 1'000'000'000) {
  const Json model = Json::object({{"model_type", "llama"},
                                   {"hidden_size", 1024},
                                   {"num_hidden_layers", 4},
                                   {"num_attention_heads", 8},
                                   {"num_key_value_heads", 8},
                                   {"intermediate_size", 2816},
                                   {"vocab_size", 8000}});
  Json ds_config = parse_json(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3,
                     "stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0,
                     "stage3_param_persistence_threshold": 0}})",
                              "",
                              {})
                       .root;
  ds_config["zero_optimization"]["stage3_max_live_parameters"] = max_live;
  return resolve(parse_scenario(Json::object({{"model", model},
                                              {"cluster", "4xA100-80G"},
                                              {"software", Json::object({{"deepspeed", release}})},
                                              {"workload",
                                               Json::object({{"sequence_length", 256},
                                                             {"method", method},
                                                             {"activation_checkpointing", "full"},
                                                             {"checkpoint_reentrant", reentrant}})},
                                              {"ds_config", ds_config}}),
                                "test"));
}

// "f" and "b" enter forward and backward, "F" and "B" leave, of the modules of layer 2 in the
// recomputation and the backward of that layer.
std::string hooks_of_a_layer(const Plan& plan) {
  const ModelGraph graph = build_graph(*plan.model, graph_options(plan));
  ModuleWalk walk(*plan.model, graph, misses_ends_of_recomputed(plan.engine));
  const std::string layer = "model.layers.2";
  std::string text;
  for (const PassStep& pass : micro_batch(graph)) {
    const bool again = pass.pass == Pass::recompute || pass.pass == Pass::backward;
    const BlockInstance& instance = graph.instances[static_cast<std::size_t>(pass.instance)];
    for (const Event& event : graph.block_of(instance).of(pass.pass)) {
      walk.follow(pass, event, [&](const ModuleStep& step) {
        const std::string& name = plan.model->modules[static_cast<std::size_t>(step.module)].name;
        if (!again || name.rfind(layer, 0) != 0) return;
        const bool forward = step.pass == FetchPass::forward;
        text += forward ? (step.enters ? "f" : "F") : (step.enters ? "b" : "B");
        text += name == layer ? "layer " : name.substr(name.rfind('.') + 1) + " ";
      });
    }
  }
  return text;
}

double most_gathered(const Plan& plan) {
  const ModelGraph graph = build_graph(*plan.model, graph_options(plan));
  Elements most;
  for (const LiveElements& live : gather_timeline(plan, graph, 1).peaks) {
    most = std::max(most, live.parameters);
  }
  return static_cast<double>(most.count());
}

}  // namespace

TEST_CASE("A reentrant recomputation is a whole forward pass before the backward pass") {
  const std::string hooks = hooks_of_a_layer(plan_of(true, "0.19.6", "full"));
  CHECK(hooks.rfind("flayer finput_layernorm ", 0) == 0);
  CHECK(hooks.find("fdown_proj Fdown_proj Fmlp Flayer blayer bmlp bdown_proj Bdown_proj ") !=
        std::string::npos);
}

TEST_CASE(
    "Another recomputation runs inside the last layer's backward and ends without its hooks") {
  const std::string hooks = hooks_of_a_layer(plan_of(false, "0.19.6", "full"));
  CHECK(hooks.rfind("blayer bmlp bdown_proj flayer finput_layernorm ", 0) == 0);
  CHECK(hooks.find("fdown_proj Bdown_proj ") != std::string::npos);
  for (const std::string left : {"Fdown_proj", "Fmlp", "Flayer"}) {
    CAPTURE(left);
    CHECK(hooks.find(left) == std::string::npos);
  }
  // Every backward hook fires once.
  CHECK(hooks.find("bmlp") == hooks.rfind("bmlp"));
}

TEST_CASE(
    "The backward of what is recomputed without reentrance never ends under DeepSpeed 0.16.0 to "
    "0.16.7") {
  for (const char* release : {"0.16.0", "0.16.4", "0.16.7"}) {
    CHECK(hooks_of_a_layer(plan_of(false, release, "full")).find('B') == std::string::npos);
    CHECK(hooks_of_a_layer(plan_of(true, release, "full")).find("Bdown_proj") != std::string::npos);
  }
  for (const char* release : {"0.15.4", "0.16.8", "0.17.0"}) {
    CHECK(hooks_of_a_layer(plan_of(false, release, "full")).find("Bdown_proj") !=
          std::string::npos);
  }
}

TEST_CASE("DeepSpeed 0.19 holds frozen weights to the end of a reentrant backward, and says so") {
  constexpr double kLayer = 4 * 1024.0 * 1024.0 + 3 * 1024.0 * 2816.0;
  const Plan held = plan_of(true, "0.19.6", "lora");
  CHECK(most_gathered(held) > 4 * kLayer);
  CHECK(frozen_weights_held(held).bytes.gib() * 1073741824.0 / 2 ==
        Approx(4 * kLayer).epsilon(0.01));
  for (const Plan& plan : {plan_of(false, "0.19.6", "lora"),
                           plan_of(true, "0.18.9", "lora"),
                           plan_of(true, "0.19.6", "full")}) {
    CHECK(frozen_weights_held(plan).bytes == Bytes::zero());
    CHECK(most_gathered(plan) < 2 * kLayer + 8000 * 1024.0);
  }
}

TEST_CASE("bitsandbytes keeps gathered four-bit weights where checkpoints are not reentrant") {
  const auto held = [](const char* release, bool reentrant, std::int64_t live) {
    return frozen_weights_held(plan_of(reentrant, release, "qlora", live));
  };
  constexpr std::int64_t kFew = 1'000'000;
  const FrozenWeightsHeld kept = held("0.18.9", false, kFew);
  CHECK(kept.by_products);
  CHECK(kept.bytes > Bytes::zero());
  CHECK(kept.spared_by_setting);
  CHECK_FALSE(kept.spared_by_release);
  CHECK(held("0.18.9", true, kFew).bytes == Bytes::zero());
  const FrozenWeightsHeld both = held("0.19.6", false, kFew);
  CHECK(both.by_products);
  CHECK(both.spared_by_release);
  CHECK_FALSE(held("0.19.6", true, kFew).by_products);
  CHECK_FALSE(held("0.19.6", true, kFew).spared_by_setting);
  CHECK(held("0.19.6", true, kFew).spared_by_release);
  // Weights that may stay gathered anyway are kept by nobody.
  CHECK(held("0.18.9", false, 1'000'000'000).bytes == Bytes::zero());
}
