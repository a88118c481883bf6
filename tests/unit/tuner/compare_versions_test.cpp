// The same run under several sets of releases: each set is simulated as it would be alone, and each
// difference is tried alone.
#include "tuner/compare_versions.hpp"

#include <algorithm>

#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const char* ds_config) {
  const Json document =
      Json::object({{"model", "gpt2"},
                    {"cluster", "4xA100-40G"},
                    {"workload", Json::object({{"sequence_length", 256}, {"micro_batch_size", 2}})},
                    {"ds_config", parse_json(ds_config, "test", {}).root}});
  return parse_scenario(document, "test");
}

constexpr const char* kStageThree =
    R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}})";
constexpr const char* kOffloaded =
    R"({"bf16": {"enabled": true},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})";

std::vector<tuner::ComparedSet> compared(const char* ds_config,
                                         const std::vector<tuner::ReleaseSet>& sets) {
  const Scenario scenario = scenario_of(ds_config);
  return tuner::compare_versions(scenario, prepare(scenario), sets, {}).sets;
}

}  // namespace

TEST_CASE("each set is the simulation of a scenario that names its releases", "[versions]") {
  const std::vector<tuner::ReleaseSet> sets = {{{0, 16, 4}, {2, 6, 0}, {4, 50, 3}},
                                               {{0, 19, 6}, {2, 11, 0}, {5, 17, 0}}};
  const std::vector<tuner::ComparedSet> all = compared(kStageThree, sets);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    Scenario scenario = scenario_of(kStageThree);
    const Origin origin = {"test", ""};
    scenario.set(ScenarioKey::deepspeed_version, Json(to_string(sets[i].deepspeed)), origin);
    scenario.set(ScenarioKey::torch_version, Json(to_string(sets[i].torch)), origin);
    scenario.set(ScenarioKey::transformers_version, Json(to_string(sets[i].transformers)), origin);
    const StepResult alone = simulator::simulate(resolve(scenario));
    CHECK(all[i].result.gpu.peak_total == alone.gpu.peak_total);
    CHECK(all[i].result.step.total.value() == alone.step.total.value());
  }
}

TEST_CASE("equal sets differ in nothing", "[versions]") {
  const tuner::ReleaseSet set = {{0, 17, 6}, {2, 8, 0}, {4, 56, 2}};
  const std::vector<tuner::ComparedSet> all = compared(kStageThree, {set, set});
  CHECK(all[1].differences == 0);
  CHECK(all[1].effects.empty());
}

TEST_CASE("a difference that stands alone is the whole change", "[versions]") {
  const std::vector<tuner::ComparedSet> all = compared(
      kStageThree, {{{0, 17, 6}, {2, 8, 0}, {4, 56, 2}}, {{0, 18, 9}, {2, 8, 0}, {4, 56, 2}}});
  REQUIRE(all[1].differences > 1);
  const auto moves_memory = [](const tuner::ReleaseEffect& effect) {
    return effect.gpu_memory != Bytes::zero();
  };
  REQUIRE(std::count_if(all[1].effects.begin(), all[1].effects.end(), moves_memory) == 1);
  const tuner::ReleaseEffect& effect =
      *std::find_if(all[1].effects.begin(), all[1].effects.end(), moves_memory);
  CHECK(effect.rule == ReleaseRule::clones_cast_master);
  CHECK(effect.begins);
  CHECK(effect.gpu_memory == all[1].result.gpu.peak_total - all[0].result.gpu.peak_total);
}

TEST_CASE("backwards, what began has ended", "[versions]") {
  const tuner::ReleaseSet older = {{0, 17, 6}, {2, 8, 0}, {4, 56, 2}};
  const tuner::ReleaseSet newer = {{0, 18, 9}, {2, 8, 0}, {4, 56, 2}};
  const std::vector<tuner::ComparedSet> all = compared(kStageThree, {older, newer, older});
  const auto effect_of = [&](std::size_t set) {
    const std::vector<tuner::ReleaseEffect>& effects = all[set].effects;
    return *std::find_if(effects.begin(), effects.end(), [](const tuner::ReleaseEffect& effect) {
      return effect.rule == ReleaseRule::clones_cast_master;
    });
  };
  CHECK(effect_of(1).begins);
  CHECK_FALSE(effect_of(2).begins);
  CHECK(effect_of(2).gpu_memory == Bytes::zero() - effect_of(1).gpu_memory);
}

TEST_CASE("a default that the releases do not share is a difference, too", "[versions]") {
  const std::vector<tuner::ComparedSet> all = compared(
      kOffloaded, {{{0, 18, 9}, {2, 11, 0}, {5, 17, 0}}, {{0, 19, 6}, {2, 11, 0}, {5, 17, 0}}});
  const auto pins = [](const tuner::ReleaseEffect& effect) {
    return effect.changed && effect.changed->knob == Knob::offload_optimizer_pin_memory;
  };
  const auto found = std::find_if(all[1].effects.begin(), all[1].effects.end(), pins);
  REQUIRE(found != all[1].effects.end());
  CHECK(found->changed->older == "false");
  CHECK(found->changed->newer == "true");
  CHECK(found->step_time < Seconds::zero());  // pinned memory copies faster
}

TEST_CASE("the code of a recorded class is a difference, too", "[versions]") {
  const tuner::ReleaseSet older = {{0, 18, 9}, {2, 10, 0}, {4, 50, 3}};
  const tuner::ReleaseSet newer = {{0, 18, 9}, {2, 10, 0}, {4, 57, 6}};
  const std::vector<tuner::ComparedSet> all = compared(kStageThree, {older, newer});
  const std::vector<tuner::ReleaseEffect>& effects = all[1].effects;
  const auto found = std::find_if(effects.begin(), effects.end(), [](const auto& effect) {
    return effect.recorded.has_value();
  });
  REQUIRE(found != effects.end());
  CHECK(found->recorded->older == all[0].plan.model->releases.recorded);
  CHECK(found->recorded->newer == all[1].plan.model->releases.recorded);
}

TEST_CASE("the usual sets are at least five, oldest first", "[versions]") {
  const std::vector<tuner::ReleaseSet> sets = tuner::usual_release_sets();
  REQUIRE(sets.size() >= 5);
  for (std::size_t i = 1; i < sets.size(); ++i) {
    CHECK(sets[i - 1].deepspeed < sets[i].deepspeed);
    CHECK(sets[i - 1].torch < sets[i].torch);
    CHECK(sets[i - 1].transformers < sets[i].transformers);
  }
}

TEST_CASE("the Trainer asks for fused AdamW since transformers 4.54, under torch 2.8",
          "[versions]") {
  const auto taken = [](const char* torch, const char* transformers) {
    Scenario scenario = scenario_of(kStageThree);
    const Origin origin = {"test", ""};
    scenario.set(ScenarioKey::torch_version, Json(torch), origin);
    scenario.set(ScenarioKey::transformers_version, Json(transformers), origin);
    return resolve(scenario).workload.optimizer_implementation;
  };
  CHECK(taken("2.8.0", "4.54.0") == OptimizerImplementation::fused);
  CHECK(taken("2.8.0", "4.53.3") == OptimizerImplementation::foreach);
  CHECK(taken("2.7.1", "4.54.0") == OptimizerImplementation::foreach);
}

TEST_CASE("what a release adds and no prediction counts is a warning", "[versions]") {
  const auto warnings = [](const char* deepspeed, const char* sums) {
    Scenario scenario = scenario_of("{}");
    const Origin origin = {"test", ""};
    Json config = Json::object({{"zero_optimization", Json::object({{"stage", 2}})},
                                {"bf16", Json::object({{"enabled", true}})},
                                {"data_types", Json::object({{"grad_accum_dtype", sums}})}});
    scenario.set(ScenarioKey::ds_config, std::move(config), origin);
    scenario.set(ScenarioKey::deepspeed_version, Json(deepspeed), origin);
    const Plan plan = resolve(scenario);
    return std::count_if(
        plan.warnings.begin(), plan.warnings.end(), [](const std::string& warning) {
          return warning.find("sums gradients of stage 2 in fp32") != std::string::npos;
        });
  };
  CHECK(warnings("0.19.8", "fp32") == 1);
  CHECK(warnings("0.19.8", "bf16") == 0);
  CHECK(warnings("0.19.6", "fp32") == 0);
}
