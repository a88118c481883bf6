// What a scenario leaves open: the interval over it, what is taken of a run that ran, and the
// probability that it fits.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "evidence/alternatives.hpp"
#include "evidence/scenario_prediction.hpp"
#include "evidence/validate.hpp"
#include "tests/catch.hpp"
#include "tests/evidence/measured_lines.hpp"

namespace zeroplan::test {
namespace {

std::vector<evidence::OpenKey> open_keys_of(const Scenario& scenario) {
  const Plan plan = resolve(with_reported_software(scenario));
  return evidence::open_keys(scenario, plan, simulator::simulate(plan));
}

}  // namespace

TEST_CASE("who has no switch for checkpointing leaves none open") {
  const auto is_open = [](const char* cluster, const std::string& said) {
    const std::string workload =
        R"("micro_batch_size":8,"implementation":"litgpt","frontend":"native",)" + said;
    Scenario scenario = scenario_of(line_of("a", workload, R"("mfu":0.1)"));
    scenario.set(ScenarioKey::model, Json("llama-2-7b"), {"", ""});
    scenario.set(ScenarioKey::cluster, Json(cluster), {"", ""});
    const std::vector<evidence::OpenKey> keys = open_keys_of(scenario);
    return std::any_of(keys.begin(), keys.end(), [](const evidence::OpenKey& key) {
      return key.name == "activation_checkpointing";
    });
  };
  const std::string lora = R"("method":{"lora":{"rank":8,"targets":["q_proj","v_proj"]}})";
  CHECK_FALSE(is_open("2xA100-80G", R"("engine":"fsdp",)" + lora));
  CHECK_FALSE(is_open("A100-80G", R"("engine":"ddp",)" + lora));
  CHECK_FALSE(is_open("A100-80G", R"("engine":"ddp","method":"full")"));
  CHECK(is_open("2xA100-80G", R"("engine":"fsdp","method":"full")"));
  // Their scripts shard where there is more than one device: this is somebody's own.
  CHECK(is_open("2xA100-80G", R"("engine":"ddp",)" + lora));
}

TEST_CASE("an open key widens the interval to its other values and leaves the default") {
  const std::string measured = R"("peak_allocated_bytes":4000000000)";
  const std::string open =
      R"("micro_batch_size":8,"gradient_accumulation_steps":1,"precision":"bf16",)"
      R"("attention":"sdpa","frontend":"hf-trainer","fused_loss":false)";
  const Scenario scenario = scenario_of(line_of("a", open, measured));
  const std::vector<evidence::OpenKey> keys = open_keys_of(scenario);
  std::vector<std::string> named;
  for (const evidence::OpenKey& key : keys) {
    if (!key.is_quiet) named.push_back(key.name);
  }
  CHECK(named == std::vector<std::string>{"activation_checkpointing"});

  Scenario checkpointed = scenario;
  checkpointed.set(ScenarioKey::activation_checkpointing, Json("full"), {"", ""});
  const evidence::ScenarioPrediction prediction = evidence::predict_scenario(scenario);
  const StepResult without = simulated(scenario);
  const StepResult with = simulated(checkpointed);
  REQUIRE(with.gpu.peak_allocated < without.gpu.peak_allocated);
  const auto& peak = prediction.of(evidence::Metric::peak_allocated_bytes);
  REQUIRE(peak);
  CHECK(peak->value == static_cast<double>(without.gpu.peak_allocated.count()));
  // Half of runs have either: 5 % of all are 10 % of one.
  const auto tenth = [](const Interval<Bytes>& interval, double side) {
    const auto low = static_cast<double>(interval.low.count());
    const auto high = static_cast<double>(interval.high.count());
    return 0.5 * (low + high) + side * 1.2816 / 1.645 * 0.5 * (high - low);
  };
  REQUIRE(with.fit_probability > 0.999);
  REQUIRE(without.fit_probability > 0.999);
  CHECK(peak->low == Approx(tenth(with.peak_allocated_interval, -1.0)).epsilon(1e-3));
  CHECK(peak->high == Approx(tenth(without.peak_allocated_interval, 1.0)).epsilon(1e-3));
  const auto& step = prediction.of(evidence::Metric::step_seconds);
  CHECK(step->low == Approx(without.step_interval.low.seconds()));
  CHECK(step->high == Approx(with.step_interval.high.seconds()));
  REQUIRE(prediction.not_stated.size() == 1);
  CHECK(prediction.not_stated[0] == "activation_checkpointing");
}

TEST_CASE("the probability that a scenario fits is the mean over its open keys' values") {
  // 18 sequences of 1024 tokens: without checkpointing too much for the GPU, with it not.
  const std::string open =
      R"("micro_batch_size":18,"gradient_accumulation_steps":1,"precision":"bf16",)"
      R"("attention":"sdpa","frontend":"hf-trainer","fused_loss":false)";
  const std::string cluster = R"(,"ds_config":{"zero_optimization":{"stage":2}})";
  Scenario scenario = scenario_of(line_of("a", open, R"("fits":true)", cluster));
  scenario.set(ScenarioKey::cluster, Json("1x1xRTX3090"), {"", ""});
  scenario.set(ScenarioKey::sequence_length, Json(1024), {"", ""});
  Scenario checkpointed = scenario;
  checkpointed.set(ScenarioKey::activation_checkpointing, Json("full"), {"", ""});
  const double without = simulated(scenario).fit_probability;
  const double with = simulated(checkpointed).fit_probability;
  REQUIRE(with > without + 0.1);
  const evidence::ScenarioPrediction prediction = evidence::predict_scenario(scenario);
  CHECK(prediction.fit_probability == Approx(0.5 * (without + with)));
  CHECK_FALSE(prediction.fits);
  // A row has the mean, not the default's.
  const evidence::ValidationReport report = evidence::validate(
      {evidence::parse_measurements(line_of("a", open, R"("fits":true)", cluster), "m.jsonl")});
  CHECK(report.rows[0].probability ==
        evidence::predict_scenario(scenario_of(line_of("a", open, R"("fits":true)", cluster)))
            .fit_probability);
}

TEST_CASE("of a run it is likely that it had a value with which it can run") {
  // 40 sequences of 1024 tokens without checkpointing are far too much for the GPU.
  const std::string open =
      R"("micro_batch_size":40,"gradient_accumulation_steps":1,"precision":"bf16",)"
      R"("attention":"sdpa","frontend":"hf-trainer","fused_loss":true)";
  Scenario scenario = scenario_of(line_of("a",
                                          open,
                                          R"("peak_allocated_bytes":1)",
                                          R"(,"ds_config":{"zero_optimization":{"stage":2}})"));
  scenario.set(ScenarioKey::cluster, Json("1x1xRTX3090"), {"", ""});
  scenario.set(ScenarioKey::sequence_length, Json(1024), {"", ""});
  Scenario checkpointed = scenario;
  checkpointed.set(ScenarioKey::activation_checkpointing, Json("full"), {"", ""});
  const StepResult with = simulated(checkpointed);
  REQUIRE(simulated(scenario).fit_probability < 0.05);
  REQUIRE(with.fit_probability > 0.9);

  const evidence::ScenarioPrediction prediction = evidence::predict_scenario(scenario);
  const auto likely =
      prediction.likely[static_cast<std::size_t>(evidence::Metric::peak_allocated_bytes)];
  CHECK(likely->value == static_cast<double>(with.gpu.peak_allocated.count()));
  CHECK(prediction.likely_values == std::vector<std::string>{"activation_checkpointing full"});
  // The interval is of runs: the default, which cannot, has no part in it.
  const auto& shown = *prediction.of(evidence::Metric::peak_allocated_bytes);
  CHECK(shown.low <= likely->value);
  CHECK(shown.high >= likely->value);
  CHECK(shown.high < 1.2 * likely->value);
  // The default is predicted all the same, and whether it fits is not concluded from that it ran.
  CHECK(prediction.of(evidence::Metric::peak_allocated_bytes)->value > likely->value);
  CHECK(prediction.fit_probability < 0.6);
}

TEST_CASE("the default stays where a run tells nothing of it") {
  const Scenario scenario = scenario_of(
      line_of("a", R"("micro_batch_size":1,"precision":"bf16")", R"("step_seconds":1)", ""));
  const StepResult defaults = simulated(scenario);
  REQUIRE(defaults.fit_probability > 0.99);
  const evidence::ScenarioPrediction prediction = evidence::predict_scenario(scenario);
  const auto likely = prediction.likely[static_cast<std::size_t>(evidence::Metric::step_seconds)];
  CHECK(likely->value == defaults.step.total.seconds());
  CHECK(prediction.likely_values.empty());
}

TEST_CASE("the weights of an open key's values are shares of one") {
  const Scenario scenario =
      scenario_of(line_of("a", R"("micro_batch_size":1)", R"("mfu":0.1)", ""));
  for (const evidence::OpenKey& key : open_keys_of(scenario)) {
    CHECK(key.default_weight() > 0.0);
    for (const evidence::Alternative& other : key.alternatives) CHECK(other.weight > 0.0);
  }
}

TEST_CASE("a fused loss is the likelier the less the logits fit beside the rest") {
  const auto weight = [](std::int64_t tokens) {
    Scenario scenario = scenario_of(line_of("a", R"("micro_batch_size":1)", R"("mfu":0.1)"));
    scenario.set(ScenarioKey::model, Json("llama-3-8b"), {"", ""});
    scenario.set(ScenarioKey::cluster, Json("1x8xH100-80G"), {"", ""});
    scenario.set(ScenarioKey::sequence_length, Json(tokens), {"", ""});
    const Plan plan = resolve(with_reported_software(scenario));
    return evidence::fused_loss_weight(plan, simulator::simulate(plan));
  };
  CHECK(weight(512) == 0.1);
  CHECK(weight(32768) > 0.5);
  CHECK(weight(1 << 20) == 0.95);
}

TEST_CASE("every open key moves its end of the interval") {
  // Checkpointing lowers the peak, eager attention, of which a quarter of runs is thought, raises
  // it.
  const std::string open =
      R"("micro_batch_size":8,"gradient_accumulation_steps":1,"precision":"bf16",)"
      R"("frontend":"hf-trainer","fused_loss":false)";
  const Scenario scenario = scenario_of(line_of("a", open, R"("mfu":0.1)"));
  const auto peak_with = [&](ScenarioKey key, const char* value) {
    Scenario changed = scenario;
    changed.set(key, Json(value), {"", ""});
    return simulated(changed);
  };
  const StepResult defaults = simulated(scenario);
  const StepResult checkpointed = peak_with(ScenarioKey::activation_checkpointing, "full");
  const StepResult eager = peak_with(ScenarioKey::attention, "eager");
  REQUIRE(eager.gpu.peak_allocated > defaults.gpu.peak_allocated);
  const evidence::ScenarioPrediction prediction = evidence::predict_scenario(scenario);
  const auto& peak = prediction.of(evidence::Metric::peak_allocated_bytes);
  CHECK(peak->value == static_cast<double>(defaults.gpu.peak_allocated.count()));
  CHECK(peak->low <= static_cast<double>(checkpointed.gpu.peak_allocated.count()));
  CHECK(peak->high >= static_cast<double>(defaults.gpu.peak_allocated.count()));
  CHECK(peak->high <=
        Approx(1.01 * static_cast<double>(eager.peak_allocated_interval.high.count())));
}

TEST_CASE("of a pipeline the first stage may be shown, which changes no verdict") {
  // The last stage holds the logits of 8 sequences, the first does not.
  const std::string line =
      R"({"id":"a","source":"here","scenario":{"model":{"model_type":"gpt2","n_embd":1024,)"
      R"("n_layer":8,"n_head":16,"n_positions":2048,"vocab_size":50257},"cluster":"1x4xV100-32G-SXM2",)"
      R"("workload":{"sequence_length":2048,"micro_batch_size":8,"gradient_accumulation_steps":2,)"
      R"("precision":"fp16","attention":"eager","activation_checkpointing":"full",)"
      R"("frontend":"native","pipeline_parallel":2,"implementation":"megatron"},)"
      R"("software":{"deepspeed":"0.19.6","torch":"2.6"},)"
      R"("ds_config":{"fp16":{"enabled":true},"zero_optimization":{"stage":1}}},)"
      R"("measured":{"peak_total_bytes":9000000000}})"
      "\n";
  const Scenario scenario = scenario_of(line);
  const std::vector<evidence::OpenKey> keys = open_keys_of(scenario);
  const auto stage = std::find_if(
      keys.begin(), keys.end(), [](const evidence::OpenKey& key) { return key.name == "stage"; });
  REQUIRE(stage != keys.end());
  CHECK(stage->is_quiet);
  Plan plan = resolve(with_reported_software(scenario));
  const StepResult worst = simulator::simulate(plan);
  stage->alternatives.front().change(plan);
  const StepResult first = simulator::simulate(plan);
  CHECK(first.gpu.peak_total < worst.gpu.peak_total);
  CHECK(first.fit_probability == worst.fit_probability);
  CHECK(first.step.total == worst.step.total);
  CHECK(sum(first.gpu.breakdown_at_peak) == first.gpu.peak_total);
  const auto& peak = evidence::predict_scenario(scenario).of(evidence::Metric::peak_total_bytes);
  CHECK(peak->value == static_cast<double>(worst.gpu.peak_total.count()));
  CHECK(peak->low < static_cast<double>(first.gpu.peak_total.count()));
  CHECK(peak->high > static_cast<double>(worst.gpu.peak_total.count()));
}

TEST_CASE("everything that has alternatives is listed where nothing is stated") {
  const Scenario scenario =
      scenario_of(line_of("a", R"("micro_batch_size":1)", R"("mfu":0.1)", ""));
  const evidence::ScenarioPrediction prediction = evidence::predict_scenario(scenario);
  const std::vector<std::string> expected = {"attention",
                                             "activation_checkpointing",
                                             "precision",
                                             "gradient_accumulation_steps",
                                             "frontend",
                                             "ds_config"};
  CHECK(prediction.not_stated == expected);
  const auto& peak = prediction.of(evidence::Metric::peak_allocated_bytes);
  CHECK(peak->low < 0.8 * peak->value);
  CHECK(peak->high > 1.5 * peak->value);  // stage 0 in fp32
}

}  // namespace zeroplan::test
