#include "tuner/reach.hpp"

#include <string>

#include "base/diagnostic.hpp"
#include "model/families/hf_config.hpp"
#include "model/plan/cluster_parts.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tuner/fit.hpp"
#include "tuner/headroom.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const std::string& text) {
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

// What fit says of the same question at a length, without packages that nobody asked for.
bool fits_at(Scenario scenario, std::int64_t tokens) {
  scenario.set(ScenarioKey::sequence_length, Json(tokens), {"test", ""});
  const tuner::FitAnswer answer = tuner::strategies_alone(scenario);
  return answer.recommended && !answer.needs.any();
}

}  // namespace

TEST_CASE("the longest sequence is one that fit takes, and it takes no longer one") {
  const Scenario scenario = scenario_of(
      R"({"model":"llama-2-7b","cluster":"1xRTX-4090","workload":{"method":"lora",
          "activation_checkpointing":"full"}})");
  const tuner::LongestSequences found = tuner::longest_sequence(scenario);
  REQUIRE(found.plain);
  const tuner::SequenceReach& best = found.plain->best;
  CHECK(best.tokens % tuner::kSequenceQuantum == 0);
  CHECK(best.row.plan.workload.sequence_length == best.tokens);
  CHECK(best.row.result.fits);
  CHECK(fits_at(scenario, best.tokens));
  const std::int64_t longest = found.plain->longer ? found.plain->longer->tokens : best.tokens;
  CHECK_FALSE(fits_at(scenario, longest + longest / 10));
}

TEST_CASE("what only a package makes possible is said to need it") {
  const tuner::LongestSequences found = tuner::longest_sequence(
      scenario_of(R"({"model":"llama-3.1-8b","cluster":"8xA100-80G-SXM"})"));
  REQUIRE(found.plain);
  CHECK_FALSE(found.plain->best.row.plan.workload.fused_loss);
  REQUIRE(found.with_packages);
  CHECK(found.packages.fused_loss);
  CHECK(found.with_packages->best.row.plan.workload.fused_loss);
  CHECK(found.with_packages->best.tokens > found.plain->best.tokens);
}

TEST_CASE("GPUs that share a sequence reach farther, as many of a node as divide the heads") {
  const auto shared_by = [](const std::string& model) {
    return tuner::longest_sequence(
        scenario_of(R"({"model":")" + model + R"(","cluster":"8xA100-80G"})"));
  };
  const tuner::LongestSequences phi = shared_by("phi-4");  // 40 heads, 10 of keys
  REQUIRE(phi.shared);
  CHECK(phi.ranks == 2);
  CHECK(phi.shared->best.row.plan.workload.sequence_parallel == 2);
  CHECK(phi.shared->best.tokens > phi.with_packages->best.tokens);
  CHECK_FALSE(shared_by("gpt2").shared);
}

TEST_CASE("where fit says yes a length is found, with the same condition of host memory") {
  const Scenario scenario = scenario_of(R"({"model":"qwen2.5-7b","cluster":"4xRTX-4090"})");
  REQUIRE(fits_at(scenario, 2048));
  const tuner::LongestSequences found = tuner::longest_sequence(scenario);
  REQUIRE(found.plain);
  CHECK(found.plain->best.tokens >= 2048);
  CHECK(found.has_condition == found.plain->best.row.result.host_condition.has_value());
}

TEST_CASE("the largest model grows with the GPU") {
  const auto size = [](const char* cluster) {
    const auto found = tuner::reach(scenario_of(std::string(R"({"cluster":")") + cluster +
                                                R"(","workload":{"sequence_length":512}})"),
                                    tuner::Sought::model);
    REQUIRE(found);
    return *parse_model_size(found->value);
  };
  CHECK(size("1xT4") < size("1xA100-80G-SXM"));
}

TEST_CASE("the largest model is one that fit takes with that host memory, said or usual") {
  const Origin origin = {"test", ""};
  Scenario scenario;
  for (const bool said : {true, false}) {
    Json cluster("4xRTX-4090");
    if (said) {
      const Json memory(Bytes::gib(62).count());
      cluster = with_cluster_parts(cluster, origin, {{"", "host_memory_bytes", memory}});
    }
    scenario.set(ScenarioKey::cluster, cluster, origin);
    const auto found = tuner::reach(scenario, tuner::Sought::model);
    REQUIRE(found);
    CHECK(*parse_model_size(found->value) > 8e9);
    CHECK(found->best.result.fits);
    if (!said) continue;
    scenario.set(ScenarioKey::model, Json("8b"), origin);
    CHECK(fits_at(scenario, 2048));
    scenario.unset(ScenarioKey::model);
  }
}

TEST_CASE("the largest value is one that fit takes, and it does not take the next") {
  const auto found = [](const char* text, tuner::Sought sought) {
    return tuner::reach(scenario_of(text), sought);
  };
  const char* adapters = R"({"model":"llama-2-7b","cluster":"1xRTX-4090",
      "workload":{"method":"lora","sequence_length":4096}})";
  const auto batch = found(adapters, tuner::Sought::micro_batch);
  REQUIRE(batch);
  CHECK(batch->best.result.fits);
  CHECK(std::to_string(batch->best.plan.workload.micro_batch_size) == batch->value);
  CHECK(batch->beyond == std::to_string(std::stoi(batch->value) + 1));
  REQUIRE(batch->lacking);
  CHECK_FALSE(batch->lacking->result.limits.empty());
  CHECK_FALSE(batch->is_last);
  const auto takes = [&](int sequences) {
    Scenario scenario = scenario_of(adapters);
    scenario.set(ScenarioKey::micro_batch_size, Json(std::int64_t{sequences}), {"test", ""});
    return tuner::strategies_alone(scenario).recommended.has_value();
  };
  CHECK(takes(std::stoi(batch->value)));
  const auto rank = found(adapters, tuner::Sought::rank);
  REQUIRE(rank);
  CHECK(std::stoi(rank->value) % 8 == 0);
  CHECK_THROWS_AS(found(R"({"model":"llama-2-7b","cluster":"1xRTX-4090"})", tuner::Sought::rank),
                  InputError);
  CHECK_THROWS_AS(found(adapters, tuner::Sought::completions), InputError);
  CHECK_THROWS_AS(found(R"({"model":"llama-2-7b","cluster":"8xA100-80G",
                            "workload":{"global_batch_size":64}})",
                        tuner::Sought::micro_batch),
                  InputError);
}

TEST_CASE("the fewest GPUs are parts of a node, then nodes, and with one fewer nothing fits") {
  const auto fewest = [](const char* text) {
    return tuner::reach(scenario_of(text), tuner::Sought::gpus);
  };
  const auto part = fewest(R"({"model":"qwen2.5-14b","cluster":"8xH100",
      "workload":{"sequence_length":1024,"method":"lora"}})");
  REQUIRE(part);
  CHECK(part->value == "1");
  const auto whole = fewest(R"({"model":"llama-3.1-405b","cluster":"8xH100",
      "workload":{"sequence_length":1024}})");
  REQUIRE(whole);
  const int gpus = std::stoi(whole->value);
  CHECK(gpus > 8);
  CHECK(gpus % 8 == 0);
  CHECK(whole->best.plan.cluster.total_gpus() == gpus);
  CHECK(whole->beyond == std::to_string(gpus - 8));
}

TEST_CASE("a strategy that is about as long and much faster is named before the longest") {
  const tuner::LongestSequences found =
      tuner::longest_sequence(scenario_of(R"({"model":"qwen3-8b","cluster":"8xH100"})"));
  REQUIRE(found.plain);
  const tuner::StrategyResult& best = found.plain->best.row;
  CHECK(best.strategy.offload_parameter == OffloadDevice::cpu);
  REQUIRE(found.plain->longer);
  CHECK(found.plain->longer->row.strategy.offload_parameter == OffloadDevice::nvme);
  CHECK(found.plain->best.tokens >= 0.97 * found.plain->longer->tokens);
}
