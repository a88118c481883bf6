#include "tuner/sensitivity.hpp"

#include <algorithm>

#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const char* config) {
  const Json document =
      Json::object({{"model", "gpt2"},
                    {"cluster", "4xA100-40G"},
                    {"workload", Json::object({{"sequence_length", 512}, {"micro_batch_size", 4}})},
                    {"ds_config", parse_json(config, "test", {}).root}});
  return parse_scenario(document, "test");
}

constexpr const char* kStageTwoFile =
    R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 100000000}})";

const tuner::Move* find_move(const tuner::Sensitivity& all,
                             std::string_view text,
                             const Plan& base) {
  for (const tuner::Move& move : all.moves) {
    if (describe(move.variation, base) == text) return &move;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("a move's result is the simulation of the changed file") {
  const tuner::Variations variations(scenario_of(kStageTwoFile));
  const tuner::Sensitivity all = tuner::sensitivity(variations);
  const tuner::Move* move = find_move(
      all, "/zero_optimization/reduce_bucket_size 100000000 -> 50000000", variations.base());
  REQUIRE(move != nullptr);
  const StepResult direct = simulator::simulate(resolve(scenario_of(
      R"({"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 4,
          "zero_optimization": {"stage": 2, "reduce_bucket_size": 50000000}})")));
  CHECK(move->result.gpu.peak_total == direct.gpu.peak_total);
  CHECK(move->result.step.total.seconds() == direct.step.total.seconds());
}

TEST_CASE("knobs move both ways and knobs of other stages are left alone") {
  const tuner::Variations variations(scenario_of(kStageTwoFile));
  const std::vector<tuner::Variation> moves = tuner::moves_of(variations.base());
  std::vector<std::int64_t> buckets;
  for (const tuner::Variation& move : moves) {
    const Knob* knob = std::get_if<Knob>(&move.changes.front().key);
    if (knob == nullptr) continue;
    CHECK(knob_row(*knob).stages.contains(2));
    CHECK(*knob != Knob::offload_param_device);
    if (*knob == Knob::reduce_bucket_size) {
      buckets.push_back(move.changes.front().value.as_integer());
    }
  }
  CHECK(std::any_of(buckets.begin(), buckets.end(), [](std::int64_t n) { return n < 100000000; }));
  CHECK(std::any_of(buckets.begin(), buckets.end(), [](std::int64_t n) { return n > 100000000; }));
  CHECK(std::find(buckets.begin(), buckets.end(), 100000000) == buckets.end());
}

TEST_CASE("the allocator's segments are a knob, unless they expand already") {
  const auto expands = [](const tuner::Variation& move) {
    return move.changes.front().key ==
           std::variant<Knob, ScenarioKey>(ScenarioKey::expandable_segments);
  };
  const tuner::Variations variations(scenario_of(kStageTwoFile));
  const std::vector<tuner::Variation> moves = tuner::moves_of(variations.base());
  const auto move = std::find_if(moves.begin(), moves.end(), expands);
  REQUIRE(move != moves.end());
  CHECK(describe(*move, variations.base()).english() == "--expandable-segments false -> true");
  const std::vector<tuner::Variation> then = tuner::moves_of(variations.plan(*move));
  CHECK(std::none_of(then.begin(), then.end(), expands));
}

TEST_CASE("a file that fixes the micro-batch does not stop it from being moved") {
  const tuner::Variations variations(scenario_of(kStageTwoFile));
  const Plan halved = variations.plan({{{ScenarioKey::micro_batch_size, Json(2)}}});
  CHECK(halved.workload.micro_batch_size == 2);
  CHECK(halved.workload.gradient_accumulation_steps ==
        variations.base().workload.gradient_accumulation_steps);
}

TEST_CASE("the largest movers are sorted, and each key stands once a direction") {
  const tuner::Variations variations(scenario_of(kStageTwoFile));
  const tuner::Sensitivity all = tuner::sensitivity(variations);
  const std::vector<std::size_t> movers = tuner::largest_movers(all, tuner::Measure::gpu_memory, 6);
  REQUIRE(movers.size() > 2);
  for (std::size_t i = 1; i < movers.size(); ++i) {
    CHECK(std::abs(tuner::added_gpu_bytes(all, all.moves[movers[i - 1]])) >=
          std::abs(tuner::added_gpu_bytes(all, all.moves[movers[i]])));
  }
  const tuner::Sensitivity again = tuner::sensitivity(variations);
  CHECK(tuner::largest_movers(again, tuner::Measure::step_time, 6) ==
        tuner::largest_movers(all, tuner::Measure::step_time, 6));
}
