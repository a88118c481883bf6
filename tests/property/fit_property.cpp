// The answer of `fit` over random questions: what it recommends fits and is the fastest that does,
// and what it offers as remedy or headroom holds when it is planned again.
#include <algorithm>

#include "base/diagnostic.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tests/property/random_scenario.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_ranking.hpp"

using namespace zeroplan;
using namespace zeroplan::testing;

namespace {

// A question without knobs: a model of some size on a small machine.
Json question(ScenarioGenerator& random, const char* memory_gpu) {
  return Json::object(
      {{"model", random.model()},
       {"cluster", std::to_string(random.one_of<std::int64_t>({1, 2, 4})) + "x" + memory_gpu},
       {"workload",
        Json::object({{"sequence_length", random.between(1, 16) * 128},
                      {"micro_batch_size", random.one_of<std::int64_t>({1, 2, 8})},
                      {"gradient_accumulation_steps", random.one_of<std::int64_t>({1, 2})}})}});
}

Json large_question(ScenarioGenerator& random) {
  Json document = question(random, "RTX4090");
  document["model"] = random.one_of<const char*>({"llama-2-7b", "llama-2-13b", "llama-3-8b"});
  return document;
}

// As fit judges where the host memory is not stated.
simulator::SimulateOptions open_host() {
  simulator::SimulateOptions options;
  return options;
}

}  // namespace

TEST_CASE("what is recommended fits, and nothing that fits is clearly faster") {
  ScenarioGenerator random(41);
  for (int i = 0; i < 12; ++i) {
    const Json document = question(random, "RTX4090");
    INFO(document.dump());
    const tuner::FitAnswer answer = tuner::fit(read(document));
    const bool any = std::any_of(answer.strategies.begin(),
                                 answer.strategies.end(),
                                 [](const tuner::StrategyResult& s) { return s.result.fits; });
    REQUIRE(answer.recommended.has_value() == any);
    if (!any) continue;
    const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
    CHECK(best.result.fits);
    for (const tuner::StrategyResult& other : answer.strategies) {
      if (!other.result.fits || !other.simulated) continue;  // the analytic estimate is rougher
      INFO(describe(other.strategy).english() << " against " << describe(best.strategy).english());
      // Ties within 2 % go to less offload and the simpler file; a full GPU is left for a quarter.
      const double allowed =
          tuner::is_at_limit(other.result) ? 1.0 / (tuner::kRoomShare * 0.98) : 1.0 / 0.98;
      CHECK(comparable_speed(other) <= comparable_speed(best) * allowed);
    }
  }
}

TEST_CASE("headroom is the largest micro-batch that fits") {
  ScenarioGenerator random(42);
  int asked = 0;
  for (int i = 0; i < 6; ++i) {
    const Json document = question(random, "RTX4090");
    INFO(document.dump());
    const tuner::FitAnswer answer = tuner::fit(read(document));
    if (!answer.headroom) continue;
    ++asked;
    const Plan& plan = answer.strategies[*answer.recommended].plan;
    const auto fits_with = [&](const char* key, std::int64_t value) {
      Json changed = document;
      changed["workload"][key] = value;
      changed["workload"]["activation_checkpointing"] =
          name(kActivationCheckpointingNames, plan.workload.activation_checkpointing);
      DsConfig config = plan.ds_config;
      config.unset(Knob::train_batch_size);
      config.unset(Knob::train_micro_batch_size_per_gpu);
      changed["ds_config"] = emit(config);
      return simulate(resolve(read(changed)), open_host()).fits;
    };
    const std::int64_t largest = answer.headroom->largest_micro_batch;
    CHECK(fits_with("micro_batch_size", largest));
    if (largest < 4096) CHECK_FALSE(fits_with("micro_batch_size", largest + 1));
    CHECK(fits_with("sequence_length", answer.headroom->longest_sequence));
  }
  CHECK(asked > 0);
}

TEST_CASE("remedies fit") {
  ScenarioGenerator random(43);
  int remedies = 0;
  for (int i = 0; i < 3; ++i) {
    Json document = large_question(random);
    // With host memory that somebody stated: what nobody did is a requirement, and more always
    // fits.
    document["cluster"] = Json::object(
        {{"gpus_per_node", 1}, {"gpu", "RTX4090"}, {"host_memory_bytes", 32'000'000'000}});
    document["workload"]["activation_checkpointing"] = "none";
    INFO(document.dump());
    const tuner::FitAnswer answer = tuner::fit(read(document));
    CHECK(answer.remedies.size() <= 4);
    for (const tuner::Remedy& remedy : answer.remedies) {
      INFO(remedy.change.english());
      CHECK(remedy.best.result.fits);
      CHECK(simulate(remedy.best.plan, open_host()).fits);
      ++remedies;
    }
  }
  CHECK(remedies > 0);
}

TEST_CASE("every strategy's file sets up that strategy") {
  ScenarioGenerator random(44);
  const tuner::FitAnswer answer = tuner::fit(read(question(random, "RTX4090")));
  for (const tuner::StrategyResult& item : answer.strategies) {
    INFO(describe(item.strategy).english());
    CHECK(item.plan.engine.stage == item.strategy.stage);
    CHECK(item.plan.engine.offload_optimizer.device == item.strategy.offload_optimizer);
    CHECK(item.plan.engine.offload_parameter.device == item.strategy.offload_parameter);
    CHECK(item.plan.workload.activation_checkpointing == item.strategy.checkpointing);
    CHECK(parse_ds_config(parse_json(emit(item.plan.ds_config).dump(), "strategy")) ==
          item.plan.ds_config);
  }
}
