#include "tuner/why.hpp"

#include <algorithm>
#include <string>

#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tuner/fit.hpp"

using namespace zeroplan;

namespace {

// A model that a 24 GB card holds with offload or with several cards, by `fit`, and why.
struct Asked {
  tuner::Question question;
  tuner::FitAnswer answer;
  std::vector<tuner::Alternative> alternatives;

  const tuner::StrategyResult& chosen() const { return answer.strategies[*answer.recommended]; }
  const tuner::Alternative* find(tuner::WhyKind kind) const {
    const auto found = std::find_if(alternatives.begin(), alternatives.end(), [&](const auto& one) {
      return one.kind == kind;
    });
    return found == alternatives.end() ? nullptr : &*found;
  }
};

Scenario scenario_of(const std::string& cluster, const std::string& workload) {
  const std::string text = R"({"model":"llama-3.2-1b","cluster":")" + cluster +
                           R"(","workload":{"sequence_length":1024)" + workload + "}}";
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

Asked asked(const std::string& cluster, const std::string& workload = "") {
  const Scenario scenario = scenario_of(cluster, workload);
  Asked asked{tuner::ask(scenario), tuner::fit(scenario), {}};
  REQUIRE(asked.answer.recommended.has_value());
  asked.alternatives = tuner::why(asked.question, asked.chosen(), {});
  return asked;
}

void check_is_simulated(const tuner::StrategyResult& row) {
  const StepResult alone = simulator::simulate(row.plan, {.other_networks = false});
  CHECK(row.result.fits == alone.fits);
  CHECK(row.result.gpu.peak_total == alone.gpu.peak_total);
  CHECK(row.result.step.total == alone.step.total);
  CHECK(row.result.fits == row.result.limits.empty());
}

}  // namespace

TEST_CASE("every alternative of a recommendation is what the simulator says of its plan") {
  const Asked two = asked("2x2xRTX4090");
  CHECK(two.alternatives.size() >= 5);
  for (const tuner::Alternative& one : two.alternatives) {
    INFO(name(tuner::kWhyKindNames, one.kind));
    if (one.other) check_is_simulated(*one.other);
    if (!one.same_batch) continue;
    check_is_simulated(*one.same_batch);
    CHECK(batch_of(*one.same_batch) == batch_of(two.chosen()));
    CHECK(batch_of(*one.other) != batch_of(two.chosen()));
  }
  const tuner::Alternative* node = two.find(tuner::WhyKind::one_node);
  REQUIRE(node != nullptr);
  CHECK(node->other->plan.cluster.nodes == 1);
  const tuner::Alternative* network = two.find(tuner::WhyKind::communication);
  REQUIRE(network != nullptr);
  CHECK(*network->share >= 0.0);
  const StepTime& step = two.chosen().result.step;
  CHECK(*network->share == step.exposed_communication / step.total);
  CHECK(network->other->result.step.total <= step.total);
}

TEST_CASE("an alternative differs from the recommendation in what its kind names") {
  const Asked one = asked("1x4xRTX4090");
  const tuner::Strategy& now = one.chosen().strategy;
  for (const tuner::Alternative& alternative : one.alternatives) {
    if (!alternative.other) continue;
    const tuner::Strategy& other = alternative.other->strategy;
    INFO(name(tuner::kWhyKindNames, alternative.kind));
    switch (alternative.kind) {
      case tuner::WhyKind::lower_stage:
        CHECK(other.stage == now.stage - 1);
        break;
      case tuner::WhyKind::higher_stage:
        CHECK(other.stage == now.stage + 1);
        break;
      case tuner::WhyKind::checkpointing:
        CHECK(other.checkpointing == ActivationCheckpointing::full);
        break;
      case tuner::WhyKind::no_checkpointing:
        CHECK(other.checkpointing == ActivationCheckpointing::none);
        break;
      case tuner::WhyKind::less_offload:
        CHECK(tuner::offload_of(other) < tuner::offload_of(now));
        break;
      case tuner::WhyKind::smaller_micro_batch:
        CHECK(alternative.other->plan.workload.micro_batch_size <
              one.chosen().plan.workload.micro_batch_size);
        break;
      case tuner::WhyKind::larger_micro_batch:
        CHECK(alternative.other->plan.workload.micro_batch_size >
              one.chosen().plan.workload.micro_batch_size);
        break;
      default:
        FAIL("one node has no other node and no network to compare with");
    }
  }
}

TEST_CASE("one GPU with a batch that was said has neither communication nor other micro-batches") {
  const Asked one =
      asked("1x1xRTX4090", R"(,"micro_batch_size":1,"gradient_accumulation_steps":1)");
  CHECK(one.find(tuner::WhyKind::communication) == nullptr);
  CHECK(one.find(tuner::WhyKind::one_node) == nullptr);
  CHECK(one.find(tuner::WhyKind::smaller_micro_batch) == nullptr);
  CHECK(one.find(tuner::WhyKind::larger_micro_batch) == nullptr);
}

TEST_CASE("a question about a plan keeps its keys and makes its batch in other ways") {
  const Scenario scenario = scenario_of("1x2xRTX4090", R"(,"micro_batch_size":2,
      "gradient_accumulation_steps":4,"activation_checkpointing":"full"},
      "ds_config":{"zero_optimization":{"stage":3,"stage3_prefetch_bucket_size":12345678,
      "offload_optimizer":{"device":"cpu","pin_memory":true,"ratio":0.5}})");
  const Plan plan = resolve(scenario);
  const tuner::Question question = tuner::ask_of(plan, scenario);
  CHECK(question.batches.sizes.size() == 4);  // 8 sequences of a rank
  const Plan again = tuner::plan_strategy(question, tuner::strategy_of(plan), {2, 4});
  CHECK(emit(again.ds_config).dump() == emit(plan.ds_config).dump());
  CHECK(simulator::simulate(again).gpu.peak_total == simulator::simulate(plan).gpu.peak_total);
}
