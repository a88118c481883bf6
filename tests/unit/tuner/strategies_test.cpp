#include "tuner/strategies.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "model/families/hf_config.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tuner/fit_question.hpp"

using namespace zeroplan;

namespace {

Scenario scenario(const std::string& workload) {
  const std::string text =
      R"({"model":"llama-2-7b","cluster":"8xA100-80G-SXM","workload":)" + workload + "}";
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

const Model& llama() {
  static const Model kModel = load_model(Json("llama-2-7b"), "test", "/model");
  return kModel;
}

constexpr OffloadDevice kNone = OffloadDevice::none;
constexpr OffloadDevice kCpu = OffloadDevice::cpu;
constexpr OffloadDevice kNvme = OffloadDevice::nvme;

}  // namespace

TEST_CASE("stages and offloads that DeepSpeed accepts, each once, without and with checkpointing") {
  const std::vector<tuner::Strategy> all = tuner::strategies(scenario("{}"));
  CHECK(all.size() == 2 * (1 + 2 + 2 + 6));
  std::set<std::string> names;
  for (const tuner::Strategy& strategy : all) names.insert(describe(strategy));
  CHECK(names.size() == all.size());
  for (const tuner::Strategy& strategy : all) {
    INFO(describe(strategy).english());
    if (strategy.stage == 0) CHECK(strategy.offload_optimizer == kNone);
    if (strategy.stage < 3) CHECK(strategy.offload_parameter == kNone);
    if (strategy.stage < 3) CHECK(strategy.offload_optimizer != kNvme);
    if (strategy.offload_parameter == kNvme) CHECK(strategy.offload_optimizer == kNvme);
  }
}

TEST_CASE("checkpointing that was said is kept") {
  const std::vector<tuner::Strategy> all =
      tuner::strategies(scenario(R"({"activation_checkpointing":"full"})"));
  CHECK(all.size() == 11);
  CHECK(std::all_of(all.begin(), all.end(), [](const tuner::Strategy& strategy) {
    return strategy.checkpointing == ActivationCheckpointing::full;
  }));
}

TEST_CASE("a strategy is described in words") {
  CHECK(tuner::describe({.stage = 0}) == "ZeRO-0");
  CHECK(tuner::describe({.stage = 2, .offload_optimizer = kCpu}) == "ZeRO-2, optimizer on cpu");
  CHECK(tuner::describe({.stage = 3,
                         .offload_optimizer = kNvme,
                         .offload_parameter = kNvme,
                         .checkpointing = ActivationCheckpointing::full}) ==
        "ZeRO-3, optimizer and parameters on nvme, full activation checkpointing");
}

TEST_CASE("a class without gradient checkpointing is planned without, and refused with it") {
  const std::string model = R"({"model_type":"mpnet","architectures":["MPNetForMaskedLM"],
      "hidden_size":256,"num_hidden_layers":2,"num_attention_heads":4,"intermediate_size":512,
      "vocab_size":1000})";
  const auto of = [&](const std::string& workload) {
    return parse_scenario(parse_json(R"({"model":)" + model + R"(,"cluster":"2xA100-80G",
        "workload":{"sequence_length":128)" +
                                         workload + "}}",
                                     "s.json")
                              .root,
                          "s.json");
  };
  const std::vector<tuner::Strategy> all = tuner::strategies(tuner::ask(of("")));
  CHECK_FALSE(all.empty());
  CHECK(std::all_of(all.begin(), all.end(), [](const tuner::Strategy& strategy) {
    return strategy.checkpointing == ActivationCheckpointing::none;
  }));
  try {
    resolve(of(R"(,"activation_checkpointing":"full")"));
    FAIL("not refused");
  } catch (const InputError& error) {
    CHECK(error.diagnostics().front().pointer == "/workload/activation_checkpointing");
    CHECK(error.diagnostics().front().expected.english() ==
          "none: MPNetForMaskedLM has no gradient checkpointing");
  }
}

TEST_CASE("a config without a hidden size has none of the values that the Trainer fills in by it") {
  const Model known = llama();
  Model apart = known;  // an encoder and a decoder, each with a width of its own
  apart.shape.hidden = 0;
  for (const Knob knob : {Knob::reduce_bucket_size,
                          Knob::stage3_prefetch_bucket_size,
                          Knob::stage3_param_persistence_threshold}) {
    CHECK(tuner::strategy_config({.stage = 3}, nullptr, known).is_auto(knob));
    CHECK_FALSE(tuner::strategy_config({.stage = 3}, nullptr, apart).is_set(knob));
  }
}

TEST_CASE("a file of our own sets up stage, offload and an optimizer that DeepSpeed builds") {
  const DsConfig config =
      tuner::strategy_config({.stage = 3, .offload_optimizer = kCpu}, nullptr, llama());
  CHECK(config.integer(Knob::zero_stage) == 3);
  CHECK(config.text(Knob::offload_optimizer_device) == "cpu");
  CHECK(config.boolean(Knob::offload_optimizer_pin_memory) == true);
  CHECK_FALSE(config.is_set(Knob::offload_param_device));
  CHECK(config.text(Knob::optimizer_type) == "AdamW");
  CHECK(config.is_auto(Knob::reduce_bucket_size));
  CHECK(config.is_auto(Knob::stage3_prefetch_bucket_size));
  const DsConfig plain = tuner::strategy_config({.stage = 0}, nullptr, llama());
  CHECK_FALSE(plain.is_set(Knob::reduce_bucket_size));
}

TEST_CASE("the optimizer that was asked for is the one in the file") {
  const auto type = [](OptimizerName optimizer) {
    return tuner::strategy_config({.stage = 2}, nullptr, llama(), optimizer)
        .text(Knob::optimizer_type);
  };
  CHECK(type(OptimizerName::adam) == "Adam");
  CHECK(type(OptimizerName::lion) == "Lion");
  CHECK(type(OptimizerName::sgd) == "SGD");
  CHECK(type(OptimizerName::muon) == "Muon");
  CHECK_FALSE(type(OptimizerName::adafactor).has_value());
  CHECK(tuner::strategy_config({.stage = 2}, nullptr, llama(), OptimizerName::adafactor)
            .boolean(Knob::zero_allow_untested_optimizer) == true);
}

TEST_CASE("NVMe gets a path, small sub-groups, and buffers that hold the largest parameter") {
  const DsConfig config = tuner::strategy_config(
      {.stage = 3, .offload_optimizer = kNvme, .offload_parameter = kNvme}, nullptr, llama());
  CHECK(config.text(Knob::offload_optimizer_nvme_path).has_value());
  CHECK(config.text(Knob::offload_param_nvme_path).has_value());
  CHECK(config.integer(Knob::sub_group_size) == 100'000'000);
  CHECK(config.integer(Knob::offload_param_buffer_size) == 32000 * 4096);
}

TEST_CASE("a user's file keeps what is not the strategy's") {
  DsConfig base;
  base.set(Knob::reduce_bucket_size, std::int64_t{12345});
  base.set(Knob::gradient_clipping, 0.25);
  base.set(Knob::zero_stage, std::int64_t{3});
  base.set(Knob::offload_param_device, std::string("cpu"));
  base.set(Knob::offload_optimizer_device, std::string("nvme"));
  const DsConfig config =
      tuner::strategy_config({.stage = 2, .offload_optimizer = kCpu}, &base, llama());
  CHECK(config.integer(Knob::reduce_bucket_size) == 12345);
  CHECK(config.real(Knob::gradient_clipping) == 0.25);
  CHECK(config.integer(Knob::zero_stage) == 2);
  CHECK(config.text(Knob::offload_optimizer_device) == "cpu");
  CHECK_FALSE(config.is_set(Knob::offload_param_device));
  CHECK_FALSE(config.is_set(Knob::optimizer_type));
}

TEST_CASE("only knobs that differ from their default count") {
  DsConfig config;
  config.set(Knob::zero_stage, std::int64_t{2});
  const int stage_alone = tuner::non_default_knobs(config);
  config.set(Knob::overlap_comm, false);  // the default of stage 2
  CHECK(tuner::non_default_knobs(config) == stage_alone);
  config.set(Knob::overlap_comm, true);
  CHECK(tuner::non_default_knobs(config) == stage_alone + 1);
  const auto count = [](const tuner::Strategy& strategy) {
    return tuner::non_default_knobs(tuner::strategy_config(strategy, nullptr, llama()));
  };
  CHECK(count({.stage = 3}) < count({.stage = 3, .offload_optimizer = kCpu}));
  CHECK(count({.stage = 3, .offload_optimizer = kCpu}) <
        count({.stage = 3, .offload_optimizer = kCpu, .offload_parameter = kCpu}));
}

TEST_CASE(
    "a loop of one's own gets the sizes as numbers, because DeepSpeed drops those that say auto") {
  const DsConfig config = tuner::strategy_config(
      {.stage = 3}, nullptr, llama(), OptimizerName::adamw, Frontend::native);
  const std::int64_t hidden = llama().shape.hidden;
  CHECK(config.integer(Knob::reduce_bucket_size) == hidden * hidden);
  CHECK(config.integer(Knob::stage3_param_persistence_threshold) == 10 * hidden);
  // A file of the user's stays what it is.
  DsConfig own;
  own.set_auto(Knob::reduce_bucket_size);
  CHECK(tuner::strategy_config({.stage = 3}, &own, llama(), OptimizerName::adamw, Frontend::native)
            .is_auto(Knob::reduce_bucket_size));
}
