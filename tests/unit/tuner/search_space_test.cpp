#include "tuner/search_space.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tuner/knob_effect.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const char* model, const char* cluster, Json workload = Json::object({})) {
  return parse_scenario(
      Json::object({{"model", model}, {"cluster", cluster}, {"workload", std::move(workload)}}),
      "test");
}

std::string error_of(const tuner::SearchWords& words) {
  try {
    tuner::read_request(words);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool has_axis(const tuner::StrategySpace& space, Knob knob) {
  return std::any_of(space.axes.begin(), space.axes.end(), [&](const tuner::Axis& axis) {
    return axis.knob == knob;
  });
}

}  // namespace

TEST_CASE("keys are found by pointer, by their end and by name") {
  const tuner::SearchRequest request =
      tuner::read_request({{"stage=3",
                            "/zero_optimization/offload_param/device=cpu",
                            "offload_optimizer.pin_memory=false",
                            "prefetch_bucket_size=5e8"},
                           {}});
  CHECK(request.knobs.at(Knob::zero_stage) == std::vector<KnobValue>{std::int64_t{3}});
  CHECK(request.knobs.at(Knob::offload_param_device) == std::vector<KnobValue>{std::string("cpu")});
  CHECK(request.knobs.at(Knob::offload_optimizer_pin_memory) == std::vector<KnobValue>{false});
  CHECK(request.knobs.at(Knob::stage3_prefetch_bucket_size) ==
        std::vector<KnobValue>{std::int64_t{500000000}});
}

TEST_CASE("a range holds both ends and the grid's points between them") {
  const tuner::SearchRequest request = tuner::read_request(
      {{}, {"reduce_bucket_size=2e7..5e8", "micro_batch_size=3..6", "gas=1..32", "ratio=0.5..1"}});
  CHECK(request.knobs.at(Knob::reduce_bucket_size) ==
        std::vector<KnobValue>{std::int64_t{20000000},
                               std::int64_t{50000000},
                               std::int64_t{100000000},
                               std::int64_t{200000000},
                               std::int64_t{500000000}});
  CHECK(request.micro_batches == std::vector<std::int64_t>{3, 4, 5, 6});
  CHECK(request.accumulations == std::vector<std::int64_t>{1, 2, 4, 8, 16, 32});
  CHECK(request.knobs.at(Knob::offload_optimizer_ratio) ==
        std::vector<KnobValue>{0.5, 0.6, 0.8, 1.0});
}

TEST_CASE("a list holds what was said, once") {
  const tuner::SearchRequest request =
      tuner::read_request({{}, {"ckpt=full,none,full", "stage=3,1"}});
  CHECK(request.checkpointings ==
        std::vector<ActivationCheckpointing>{ActivationCheckpointing::full,
                                             ActivationCheckpointing::none});
  CHECK(request.knobs.at(Knob::zero_stage).size() == 2);
}

TEST_CASE("an unknown key is told with the nearest name") {
  CHECK(contains(error_of({{"reduce_bucket_sise=1"}, {}}), "did you mean reduce_bucket_size?"));
  CHECK(contains(error_of({{"device=cpu"}, {}}), "/zero_optimization/offload_param/device"));
}

TEST_CASE("values outside a key's range, words for numbers and ranges of texts are refused") {
  CHECK(contains(error_of({{"stage=4"}, {}}), "expected a value from 0 to 3, got 4"));
  CHECK(contains(error_of({{"stage=two"}, {}}), "expected a whole number, got \"two\""));
  CHECK(contains(error_of({{}, {"offload_optimizer.device=none..cpu"}}), "the key has no order"));
  CHECK(contains(error_of({{}, {"micro_batch_size=8..2"}}), "from the smaller to the larger"));
  CHECK(contains(error_of({{"offload_param.device=disk"}, {}}), "one of none, cpu, nvme"));
  CHECK(contains(error_of({{"stage=3"}, {"stage=1,2"}}), "each key once"));
  CHECK(contains(error_of({{"stage"}, {}}), "KEY=VALUE"));
}

TEST_CASE("all wrong words are reported together") {
  const std::string text = error_of({{"stage=9", "nonsense_key=1"}, {"gas=0"}});
  CHECK(std::count(text.begin(), text.end(), '\n') >= 2);
}

TEST_CASE("a knob is an axis only where it acts") {
  const tuner::SearchSpace space(scenario_of("llama-2-7b", "8xA100-80G"), {});
  for (const tuner::StrategySpace& strategy : space.strategies()) {
    INFO(describe(strategy.strategy).english());
    const bool stage3 = strategy.strategy.stage == 3;
    CHECK(has_axis(strategy, Knob::stage3_prefetch_bucket_size) == stage3);
    CHECK(has_axis(strategy, Knob::reduce_bucket_size) == (strategy.strategy.stage > 0));
    CHECK(has_axis(strategy, Knob::offload_optimizer_ratio) ==
          (stage3 && strategy.strategy.offload_optimizer == OffloadDevice::cpu));
    CHECK(has_axis(strategy, Knob::offload_optimizer_pipeline_read) ==
          (strategy.strategy.offload_optimizer == OffloadDevice::nvme));
    // One node: nothing is gained by a secondary partition of the weights inside it.
    CHECK_FALSE(has_axis(strategy, Knob::zero_hpz_partition_size));
    for (const tuner::Axis& axis : strategy.axes) {
      CHECK(tuner::has_effect(axis.knob,
                              {strategy.strategy.stage,
                               strategy.strategy.offload_optimizer,
                               strategy.strategy.offload_parameter}));
    }
  }
  CHECK(space.points() > 100000);
}

TEST_CASE("hpZ is searched between nodes, in groups that divide one") {
  const tuner::SearchSpace space(scenario_of("gpt2", "2x4xA100-80G"), {});
  for (const tuner::StrategySpace& strategy : space.strategies()) {
    for (const tuner::Axis& axis : strategy.axes) {
      if (axis.knob != Knob::zero_hpz_partition_size) continue;
      // 1, 2, 4; beside weights on NVMe DeepSpeed refuses all but 1.
      const bool refused = strategy.strategy.offload_parameter == OffloadDevice::nvme;
      CHECK(axis.values.size() == (refused ? 1 : 3));
    }
  }
}

TEST_CASE("the default stands first, so that the first point is the simplest") {
  const tuner::SearchSpace space(scenario_of("gpt2", "4xA100-80G"), {});
  for (std::size_t s = 0; s < space.strategies().size(); ++s) {
    tuner::Point point;
    point.strategy = static_cast<std::int32_t>(s);
    CHECK(space.cost(point) == space.strategies()[s].cost);
  }
}

TEST_CASE("a fixed global batch pairs micro-batches with accumulations") {
  const tuner::SearchSpace space(scenario_of("gpt2", "4xA100-80G"),
                                 tuner::read_request({{"train_batch_size=48"}, {}}));
  REQUIRE_FALSE(space.batches().empty());
  for (const BatchSizes& batch : space.batches()) {
    CHECK(batch.micro_batch * batch.accumulation * 4 == 48);
  }
  CHECK_THROWS_AS(tuner::SearchSpace(scenario_of("gpt2", "4xA100-80G"),
                                     tuner::read_request({{"train_batch_size=50"}, {}})),
                  InputError);
}

TEST_CASE("without a batch a step has about 128 sequences, and what was said is kept") {
  const auto made = [](const tuner::SearchSpace& space) {
    std::set<std::int64_t> all;
    for (const BatchSizes& batch : space.batches()) {
      all.insert(batch.micro_batch * batch.accumulation * 4);
    }
    return all;
  };
  const auto space_of = [](Json workload, const std::vector<std::string>& search = {}) {
    return tuner::SearchSpace(scenario_of("gpt2", "4xA100-80G", std::move(workload)),
                              tuner::read_request({{}, search}));
  };
  CHECK(made(space_of(Json::object({}))) == std::set<std::int64_t>{128});
  CHECK(made(space_of(Json::object({{"micro_batch_size", 8}}))) == std::set<std::int64_t>{128});
  CHECK(made(space_of(Json::object({{"global_batch_size", 64}}))) == std::set<std::int64_t>{64});
  CHECK(made(space_of(Json::object({}), {"micro_batch_size=1,2", "gas=1,4"})) ==
        std::set<std::int64_t>{4, 8, 16, 32});
  const Plan plan = space_of(Json::object({})).plan(tuner::Point{});
  CHECK(std::any_of(plan.assumptions.begin(), plan.assumptions.end(), [](const std::string& line) {
    return line.starts_with("128 sequences a step");
  }));
}

TEST_CASE("a ds_config's sizes are the batch, and how it is made is searched") {
  Json document = Json::object({{"model", "gpt2"}, {"cluster", "4xA100-80G"}});
  document["ds_config"] =
      Json::object({{"train_micro_batch_size_per_gpu", 4}, {"gradient_accumulation_steps", 2}});
  const tuner::SearchSpace space(parse_scenario(document, "test"), {});
  CHECK(space.batches() == std::vector<BatchSizes>{{1, 8}, {2, 4}, {4, 2}, {8, 1}});
}

TEST_CASE("less offload is simpler than any choice of other knobs") {
  const tuner::SearchSpace space(scenario_of("gpt2", "4xA100-80G"), {});
  int most_without = 0;
  int least_with = 1 << 20;
  for (const tuner::StrategySpace& strategy : space.strategies()) {
    int most = strategy.cost + 1;
    for (const tuner::Axis& axis : strategy.axes) {
      most += *std::max_element(axis.cost.begin(), axis.cost.end());
    }
    const bool offloads = tuner::offload_of(strategy.strategy) > 0;
    if (!offloads) most_without = std::max(most_without, most);
    if (offloads) least_with = std::min(least_with, strategy.cost);
  }
  CHECK(most_without < least_with);
}

TEST_CASE("what flags of the workload say is no choice") {
  const tuner::SearchSpace space(
      scenario_of("gpt2",
                  "4xA100-80G",
                  Json::object({{"micro_batch_size", 3}, {"activation_checkpointing", "full"}})),
      {});
  for (const BatchSizes& batch : space.batches()) CHECK(batch.micro_batch == 3);
  CHECK(space.checkpointings() ==
        std::vector<ActivationCheckpointing>{ActivationCheckpointing::full});
}

TEST_CASE("a point's plan has its values") {
  const tuner::SearchSpace space(
      scenario_of("gpt2", "4xA100-80G"),
      tuner::read_request({{"stage=3", "reduce_bucket_size=12345678", "gradient_clipping=0.5"},
                           {"micro_batch_size=2,4"}}));
  tuner::Point point;
  point.batch = static_cast<std::int32_t>(space.batches().size()) - 1;
  const Plan plan = space.plan(point);
  CHECK(plan.engine.stage == 3);
  CHECK(plan.engine.reduce_bucket == Elements::of(12345678));
  CHECK(plan.engine.gradient_clipping == 0.5);
  CHECK(plan.workload.micro_batch_size == 4);
  CHECK(tuner::startup_refusal(plan).empty());
}

TEST_CASE("the user's own value joins the grid") {
  Json document = Json::object({{"model", "gpt2"}, {"cluster", "4xA100-80G"}});
  document["ds_config"] = Json::object(
      {{"zero_optimization",
        Json::object({{"stage", 2}, {"reduce_bucket_size", std::int64_t{77000000}}})}});
  const tuner::SearchSpace space(parse_scenario(document, "test"), {});
  for (const tuner::StrategySpace& strategy : space.strategies()) {
    for (const tuner::Axis& axis : strategy.axes) {
      if (axis.knob != Knob::reduce_bucket_size) continue;
      CHECK(std::find(axis.values.begin(), axis.values.end(), KnobValue(std::int64_t{77000000})) !=
            axis.values.end());
    }
  }
}

TEST_CASE("only DeepSpeed's knobs are searched") {
  CHECK_THROWS_AS(
      tuner::SearchSpace(scenario_of("gpt2", "4xA100-80G", Json::object({{"engine", "fsdp"}})), {}),
      InputError);
}
