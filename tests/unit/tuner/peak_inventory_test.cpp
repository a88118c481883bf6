#include "tuner/peak_inventory.hpp"

#include <algorithm>
#include <numeric>

#include "model/plan/scenario_reader.hpp"
#include "model/step/step_graph.hpp"
#include "simulator/lockstep.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/rank_simulation.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Plan plan_of_workload(const char* workload, const char* config = nullptr) {
  Json document = Json::object({{"model", "gpt2"},
                                {"cluster", "4xA100-40G"},
                                {"workload", parse_json(workload, "test", {}).root}});
  if (config != nullptr) document["ds_config"] = parse_json(config, "test", {}).root;
  return resolve(parse_scenario(document, "test"));
}

Plan plan_of(const char* config, std::int64_t accumulation = 1) {
  const Json document = Json::object(
      {{"model", "gpt2"},
       {"cluster", "4xA100-40G"},
       {"workload",
        Json::object({{"sequence_length", 512}, {"gradient_accumulation_steps", accumulation}})},
       {"ds_config", parse_json(config, "test", {}).root}});
  return resolve(parse_scenario(document, "test"));
}

struct Walked {
  Plan plan;
  ModelGraph graph;
  simulator::RankProgram rank;
  explicit Walked(Plan made)
      : plan(std::move(made)),
        graph(step_graph(plan)),
        rank(simulator::write_rank_program(plan, graph)) {}
};

}  // namespace

namespace {

void check_sums(const Walked& run) {
  const tuner::PeakInventory peak =
      tuner::PeakInventoryBuilder(run.plan, run.graph, run.rank).at_peak();
  const simulator::RankSimulation simulation = simulator::simulate_rank(run.rank);
  // The allocator leaves small rests at a block and counts them, the walk does not.
  constexpr double kRests = 0.01;
  const double simulated = simulation.stats.peak_allocated().gib();
  CHECK(peak.allocated <= simulation.stats.peak_allocated());
  CHECK(peak.allocated.gib() == Approx(simulated).epsilon(kRests));
  Bytes held;
  for (const tuner::HeldSort& one : peak.held) held += one.bytes;
  CHECK(held == peak.allocated);
  CategoryBytes walked{};
  for (const tuner::HeldSort& one : peak.held) at(walked, one.category) += one.bytes;
  const CategoryBytes& played = simulation.memory.at_peak[static_cast<std::size_t>(peak.phase)];
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    INFO(kMemoryCategoryNames[i]);
    CHECK(walked[i].gib() == Approx(played[i].gib()).margin(kRests * simulated));
  }
}

}  // namespace

TEST_CASE("what is held at the peak sums to what the simulation allocates, by category") {
  for (const int stage : {0, 1, 2, 3}) {
    for (const std::int64_t accumulation : {1, 6}) {
      const std::string config = R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": )" +
                                 std::to_string(stage) + "}}";
      INFO("stage " << stage << ", accumulation " << accumulation);
      check_sums(Walked(plan_of(config.c_str(), accumulation)));
    }
  }
  check_sums(Walked(plan_of_workload(R"({"engine": "fsdp", "sequence_length": 512})")));
  check_sums(Walked(plan_of_workload(R"({"engine": "ddp", "sequence_length": 512})")));
}

TEST_CASE("every allocation says what it is for, under every engine") {
  const auto check = [](const char* workload, const char* config) {
    INFO(workload << (config != nullptr ? config : ""));
    const Walked run(plan_of_workload(workload, config));
    const tuner::PeakInventoryBuilder held(run.plan, run.graph, run.rank);
    const std::vector<simulator::Instruction>& code = run.rank.program.code;
    for (std::size_t i = 0; i < code.size(); ++i) {
      if (code[i].opcode != simulator::Opcode::allocate) continue;
      CHECK_FALSE(held.sort_of(i).what.empty());
    }
  };
  for (const char* workload : {
           R"({"engine": "fsdp"})",
           R"({"engine": "fsdp", "method": "lora", "activation_checkpointing": "full"})",
           R"({"engine": "fsdp", "gradient_accumulation_steps": 2, "weights_dtype": "fp32"})",
           R"({"engine": "ddp", "weights_dtype": "fp32", "gradient_accumulation_steps": 2})",
           R"({"engine": "ddp", "method": "lora"})",
           R"({"engine": "ddp", "trainer": "grpo"})",
           R"({"engine": "embedded"})",
       }) {
    check(workload, nullptr);
  }
  for (const char* config : {
           R"({"zero_optimization": {"stage": 0}, "fp16": {"enabled": true}})",
           R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}})",
           R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
               "bf16": {"enabled": true}})",
           R"({"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}})",
           R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
               "offload_param": {"device": "cpu"}}, "bf16": {"enabled": true}})",
           R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2},
               "bf16": {"enabled": true}})",
       }) {
    check(R"({"gradient_accumulation_steps": 2, "frontend": "native"})", config);
  }
  for (const char* trainer : {R"({"trainer": "dpo"})", R"({"trainer": "ppo"})"}) {
    check(trainer, R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})");
  }
}

TEST_CASE("an engine's buffers are found by name, with their knob") {
  const Walked run(plan_of(
      R"({"bf16": {"enabled": true},
          "zero_optimization": {"stage": 3, "reduce_bucket_size": 300000000}})"));
  const tuner::PeakInventory peak =
      tuner::PeakInventoryBuilder(run.plan, run.graph, run.rank).at_peak();
  const auto found =
      std::find_if(peak.held.begin(), peak.held.end(), [](const tuner::HeldSort& one) {
        return one.sort.name == "ipg_buckets[dtype].buffer";
      });
  REQUIRE(found != peak.held.end());
  CHECK(found->sort.knobs.front() == pointer_of(Knob::reduce_bucket_size));
  CHECK(found->bytes >= Bytes::of(2 * 300000000LL));
}

TEST_CASE("an allocation is found by the size of its segment, and another size finds none") {
  const Walked run(plan_of(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})"));
  const tuner::PeakInventoryBuilder held(run.plan, run.graph, run.rank);
  // The fp32 logits of 512 tokens: 512 * 50257 * 4 bytes = 98.2 MiB, in segments of 2 MiB 100.
  const std::vector<tuner::SizeMatch> matches = held.matches({Bytes::mib(100), Bytes::zero(), {}});
  REQUIRE_FALSE(matches.empty());
  CHECK(std::any_of(matches.begin(), matches.end(), [](const tuner::SizeMatch& match) {
    return match.category == MemoryCategory::logits && match.bytes == Bytes::of(512 * 50257 * 4);
  }));
  CHECK(held.matches({Bytes::mib(333), Bytes::zero(), {}}).empty());
}

TEST_CASE("the match nearest to what was allocated comes first") {
  const Walked run(plan_of(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})"));
  const tuner::PeakInventoryBuilder held(run.plan, run.graph, run.rank);
  const tuner::SizeQuestion any{Bytes::mib(100), Bytes::zero(), {}};
  const std::vector<tuner::SizeMatch> matches = held.matches(any);
  REQUIRE(matches.size() > 1);
  tuner::SizeQuestion question = any;
  question.allocated = matches.back().allocated_before;
  CHECK(held.matches(question).front().allocated_before == *question.allocated);
}
