#include "tuner/fit.hpp"

#include <algorithm>

#include "base/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"
#include "tuner/fit_ranking.hpp"

using namespace zeroplan;

namespace {

// A name as JSON; a document is JSON already.
std::string quoted(const std::string& text) {
  return text.front() == '{' || text.front() == '"' ? text : '"' + text + '"';
}

tuner::FitAnswer ask(const std::string& model,
                     const std::string& cluster,
                     const std::string& workload,
                     const std::string& ds_config = "") {
  std::string text =
      R"({"model":)" + model + R"(,"cluster":)" + quoted(cluster) + R"(,"workload":)" + workload;
  if (!ds_config.empty()) text += ",\"ds_config\":" + ds_config;
  return tuner::fit(parse_scenario(parse_json(text + "}", "s.json").root, "s.json"));
}

const std::string kSmall =
    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":512,
        "intermediate_size":1408,"num_hidden_layers":4,"num_attention_heads":8,
        "num_key_value_heads":8,"vocab_size":8000,"max_position_embeddings":2048,
        "tie_word_embeddings":false,"rms_norm_eps":1e-6})";

}  // namespace

TEST_CASE("a small model on a large GPU fits as it is, with room to spare") {
  const tuner::FitAnswer answer = ask(kSmall, "1x1xA100-80G-SXM", R"({"sequence_length":512})");
  REQUIRE(answer.recommended.has_value());
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  CHECK(best.strategy.offload_optimizer == OffloadDevice::none);
  CHECK(best.strategy.checkpointing == ActivationCheckpointing::none);
  REQUIRE(answer.headroom.has_value());
  CHECK(answer.headroom->largest_micro_batch > 16);
  CHECK(answer.headroom->longest_sequence > 2048);
  CHECK(answer.remedies.empty());
}

TEST_CASE("where nothing fits the answer has remedies and no recommendation") {
  const tuner::FitAnswer answer =
      ask(kSmall,
          "1x1xRTX4090",
          R"({"sequence_length":2048,"micro_batch_size":64,"activation_checkpointing":"none",
              "fused_loss":false})");
  CHECK_FALSE(answer.recommended.has_value());
  CHECK_FALSE(answer.headroom.has_value());
  for (const tuner::StrategyResult& item : answer.strategies) {
    INFO(describe(item.strategy).english());
    CHECK_FALSE(item.result.fits);
    CHECK_FALSE(item.result.limits.empty());
  }
  REQUIRE_FALSE(answer.remedies.empty());
  for (const tuner::Remedy& remedy : answer.remedies) CHECK(remedy.best.result.fits);
}

TEST_CASE("a first answer is simulated, fits, and offloads no more than it must") {
  // Without offload; with the optimizer's states on the host; nothing.
  struct Case {
    const char* model;
    const char* cluster;
    bool fits;
    int offload;
  };
  for (const Case& one : {Case{"llama-2-7b", "1x8xA100-80G-SXM", true, 0},
                          Case{"llama-2-7b", "1x1xA100-80G-SXM", true, 1},
                          Case{"llama-2-70b", "1x1xRTX4090", false, 0}}) {
    INFO(one.model << " on " << one.cluster);
    const Scenario scenario =
        parse_scenario(parse_json(R"({"model":")" + std::string(one.model) + R"(","cluster":")" +
                                      one.cluster + R"(","workload":{"sequence_length":1024}})",
                                  "s.json")
                           .root,
                       "s.json");
    const tuner::FitAnswer first = tuner::quick_fit(scenario);
    const tuner::FitAnswer all = tuner::fit(scenario);
    CHECK_FALSE(first.complete);
    CHECK(all.complete);
    CHECK(first.recommended.has_value() == one.fits);
    CHECK(all.recommended.has_value() == one.fits);
    if (!first.recommended) continue;
    const tuner::StrategyResult& best = first.strategies[*first.recommended];
    CHECK(best.simulated);
    CHECK(best.result.fits);
    CHECK(tuner::offload_of(best.strategy) == one.offload);
    // The same plan has the same numbers wherever it is simulated.
    const tuner::StrategyResult& same = all.strategies[*all.recommended];
    if (same.plan.workload.micro_batch_size == best.plan.workload.micro_batch_size &&
        describe(same.strategy) == describe(best.strategy)) {
      CHECK(same.result.gpu.peak_total == best.result.gpu.peak_total);
      CHECK(same.result.step.total == best.result.step.total);
    }
  }
}

TEST_CASE("where pinned memory alone is too much a strategy without it is the answer") {
  // 64 GB said: 4 % too little for the strategy with the least, as templates write it.
  const char* const workload = R"("workload":{"sequence_length":2048})";
  const auto with_host_memory = [&](const std::string& bytes) {
    return R"({"model":"llama-2-7b","cluster":{"gpus_per_node":4,"gpu":"RTX4090",
               "host_memory_bytes":)" +
           bytes + "}," + workload;
  };
  const std::string tight = with_host_memory("64000000000") + "}";
  const tuner::FitAnswer answer =
      tuner::fit(parse_scenario(parse_json(tight, "s.json").root, "s.json"));
  REQUIRE(answer.recommended.has_value());
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  CHECK_FALSE(best.strategy.pinned);
  CHECK(best.plan.ds_config.boolean(Knob::offload_optimizer_pin_memory) == false);
  CHECK(describe(best.strategy).english().find("pin_memory false") != std::string::npos);
  // A file that says how is kept, and gets a remedy.
  const tuner::FitAnswer said = tuner::fit(parse_scenario(
      parse_json(with_host_memory("50000000000") +
                     R"(,"ds_config":{"zero_optimization":{"stage":3,"sub_group_size":1e9,
                 "offload_optimizer":{"device":"cpu","pin_memory":true},
                 "offload_param":{"device":"cpu","pin_memory":true}}}})",
                 "s.json")
          .root,
      "s.json"));
  REQUIRE_FALSE(said.recommended.has_value());
  REQUIRE_FALSE(said.remedies.empty());
  CHECK(said.remedies[0].change == "offload with pin_memory false");
  CHECK(said.remedies[0].best.result.fits);
}

TEST_CASE("what fits with Liger's loss alone is an answer that names the package") {
  const char* const workload = R"({"sequence_length":16384,"method":"lora"})";
  const tuner::FitAnswer answer = ask("\"llama-3.1-8b\"", "1x1xRTX4090", workload);
  REQUIRE(answer.recommended.has_value());
  CHECK(answer.needs == tuner::Packages{.fused_loss = true});
  REQUIRE(answer.nearest_without.has_value());
  CHECK_FALSE(answer.nearest_without->result.fits);
  const Plan& plan = answer.strategies[*answer.recommended].plan;
  CHECK(plan.workload.fused_loss);
  CHECK(std::any_of(plan.assumptions.begin(), plan.assumptions.end(), [](const std::string& s) {
    return s.starts_with("liger-kernel is installed");
  }));
}

TEST_CASE(
    "a question that fits as it is needs no package, and hears of one that is clearly faster") {
  const tuner::FitAnswer answer =
      ask("\"qwen2.5-1.5b\"", "1x4xA100-80G-SXM", R"({"sequence_length":2048})");
  REQUIRE(answer.recommended.has_value());
  CHECK_FALSE(answer.needs.any());
  CHECK_FALSE(answer.strategies[*answer.recommended].plan.workload.fused_loss);
  REQUIRE(answer.faster_with.has_value());
  CHECK(answer.faster_with->best.result.step.tokens_per_second_per_gpu >
        1.1 * answer.strategies[*answer.recommended].result.step.tokens_per_second_per_gpu);
  const tuner::FitAnswer without =
      ask("\"qwen2.5-1.5b\"", "1x4xA100-80G-SXM", R"({"sequence_length":2048,"fused_loss":false})");
  CHECK_FALSE(without.faster_with.has_value());
}

TEST_CASE("every strategy is asked at the user's own micro-batch and sequence") {
  const tuner::FitAnswer answer =
      ask(kSmall, "1x4xA100-80G-SXM", R"({"sequence_length":768,"micro_batch_size":3})");
  for (const tuner::StrategyResult& item : answer.strategies) {
    CHECK(item.plan.workload.micro_batch_size == 3);
    CHECK(item.plan.workload.sequence_length == 768);
  }
}

TEST_CASE("a user's ds_config gives the knobs that are no strategy") {
  const tuner::FitAnswer answer =
      ask(kSmall,
          "1x4xA100-80G-SXM",
          "{}",
          R"({"zero_optimization":{"stage":3,"reduce_bucket_size":7654321}})");
  for (const tuner::StrategyResult& item : answer.strategies) {
    CHECK(item.plan.engine.reduce_bucket == Elements::of(7654321));
  }
}

TEST_CASE("the optimizer that was asked for is planned and written") {
  const tuner::FitAnswer answer = ask(kSmall, "1x4xA100-80G-SXM", R"({"optimizer":"lion"})");
  for (const tuner::StrategyResult& item : answer.strategies) {
    INFO(describe(item.strategy).english());
    const bool offloaded = item.strategy.offload_optimizer != OffloadDevice::none;
    CHECK(item.plan.engine.optimizer ==
          (offloaded ? OptimizerKind::cpu_lion : OptimizerKind::fused_lion));
    CHECK(item.plan.ds_config.text(Knob::optimizer_type) == "Lion");
  }
}

TEST_CASE("Muon is planned where DeepSpeed does its update") {
  const tuner::FitAnswer answer = ask(kSmall, "1x4xA100-80G-SXM", R"({"optimizer":"muon"})");
  CHECK(answer.strategies.size() >= 2);
  for (const tuner::StrategyResult& item : answer.strategies) {
    INFO(describe(item.strategy).english());
    CHECK((item.strategy.stage == 1 || item.strategy.stage == 2));
    CHECK(item.strategy.offload_optimizer == OffloadDevice::none);
    CHECK(item.plan.engine.optimizer == OptimizerKind::muon);
    CHECK(item.plan.ds_config.text(Knob::optimizer_type) == "Muon");
  }
}

TEST_CASE("a higher confidence never lets more strategies fit") {
  const auto count = [](double confidence) {
    PredictOptions options;
    options.confidence = confidence;
    const Json document = Json::object({{"model", "llama-2-7b"},
                                        {"cluster", "1x4xRTX4090"},
                                        {"workload", Json::object({{"sequence_length", 1024}})}});
    const tuner::FitAnswer answer = tuner::fit(parse_scenario(document, "s.json"), options);
    return std::count_if(answer.strategies.begin(),
                         answer.strategies.end(),
                         [](const tuner::StrategyResult& item) { return item.result.fits; });
  };
  CHECK(count(0.999) <= count(0.5));
}

TEST_CASE("a question that cannot be planned is an input error") {
  CHECK_THROWS_AS(ask("\"llama-2-7b\"", "1x4xRTX4090", R"({"tensor_parallel":3})"), InputError);
}

TEST_CASE("adapters that fit only without reentrant checkpointing get it, or are told so") {
  const auto answer_with = [](const std::string& reentrant) {
    return ask(R"("llama-2-13b")",
               "1x8xA10",
               R"({"sequence_length":512,"method":"lora","activation_checkpointing":"full")" +
                   reentrant + "}");
  };
  const tuner::FitAnswer free = answer_with("");
  REQUIRE(free.recommended.has_value());
  CHECK_FALSE(free.strategies[*free.recommended].plan.workload.checkpoint_reentrant);
  const tuner::FitAnswer said = answer_with(R"(,"checkpoint_reentrant":true)");
  REQUIRE_FALSE(said.recommended.has_value());
  REQUIRE_FALSE(said.remedies.empty());
  CHECK(said.remedies[0].change ==
        "checkpoint with use_reentrant=False (--checkpoint-reentrant false)");
  CHECK(said.remedies[0].best.plan.engine.stage == 3);
}

TEST_CASE("without a batch every strategy makes the usual one, with its own micro-batch") {
  const tuner::FitAnswer answer = ask(kSmall, "1x4xA100-80G-SXM", R"({"sequence_length":512})");
  for (const tuner::StrategyResult& item : answer.strategies) {
    const Workload& workload = item.plan.workload;
    CHECK(workload.micro_batch_size * workload.gradient_accumulation_steps * 4 == 128);
  }
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  CHECK(best.plan.workload.micro_batch_size > 1);
  // Faster than what the most frugal batch does.
  const tuner::FitAnswer frugal = ask(kSmall,
                                      "1x4xA100-80G-SXM",
                                      R"({"sequence_length":512,"micro_batch_size":1,
                                   "gradient_accumulation_steps":1})");
  CHECK(best.result.step.tokens_per_second_per_gpu >
        frugal.strategies[*frugal.recommended].result.step.tokens_per_second_per_gpu);
}

TEST_CASE("a global batch, sizes and a file's batch are kept") {
  const auto product = [](const tuner::StrategyResult& item) {
    const Workload& workload = item.plan.workload;
    return workload.micro_batch_size * workload.gradient_accumulation_steps * 4;
  };
  for (const tuner::StrategyResult& item :
       ask(kSmall, "1x4xA100-80G-SXM", R"({"sequence_length":512,"global_batch_size":24})")
           .strategies) {
    CHECK(product(item) == 24);
  }
  for (const tuner::StrategyResult& item :
       ask(kSmall, "1x4xA100-80G-SXM", R"({"sequence_length":512})", R"({"train_batch_size":40})")
           .strategies) {
    CHECK(product(item) == 40);
  }
}

TEST_CASE("host memory that is unspecified is a requirement, one that somebody did a limit") {
  // Weights in fp16 are built on the host by every rank: a checkpoint in bf16 is not mapped.
  const std::string workload = R"({"sequence_length":1024,"method":"lora","precision":"fp16"})";
  const tuner::FitAnswer open = ask(R"("llama-3-8b")", R"("4xRTX4090")", workload);
  REQUIRE(open.recommended.has_value());
  const tuner::StrategyResult& best = open.strategies[*open.recommended];
  REQUIRE(best.result.host_condition.has_value());
  const HostCondition& condition = *best.result.host_condition;
  CHECK(condition.enough > best.result.host.capacity);
  CHECK(condition.enough - condition.margin == best.result.host.peak);
  CHECK(best.result.fit_probability >= 0.95);
  REQUIRE(open.usual_host.has_value());
  REQUIRE(open.usual_host->best.has_value());
  // With so much it fits, with the usual amount the other does.
  const auto with = [&](Bytes memory) {
    return ask(R"("llama-3-8b")",
               R"({"gpus_per_node":4,"gpu":"RTX4090","host_memory_bytes":)" +
                   std::to_string(memory.count()) + "}",
               workload);
  };
  const tuner::FitAnswer enough = with(condition.enough);
  REQUIRE(enough.recommended.has_value());
  CHECK(enough.strategies[*enough.recommended].strategy.stage == best.strategy.stage);
  CHECK(tuner::offload_of(enough.strategies[*enough.recommended].strategy) ==
        tuner::offload_of(best.strategy));
  const tuner::FitAnswer usual = with(best.result.host.capacity);
  REQUIRE(usual.recommended.has_value());
  CHECK(usual.strategies[*usual.recommended].result.step.total ==
        open.usual_host->best->result.step.total);
  const tuner::FitAnswer stated = ask(R"("llama-3-8b")",
                                      R"({"gpus_per_node":4,"gpu":"RTX4090",
                                   "host_memory_bytes":64000000000})",
                                      workload);
  REQUIRE(stated.recommended.has_value());
  CHECK(stated.strategies[*stated.recommended].result.host.peak < Bytes::gib(60));
  CHECK(stated.behind_host_memory.empty());
}

TEST_CASE("of several nodes one is named where it is enough") {
  const tuner::FitAnswer answer = ask(kSmall, "2x4xA100-80G-SXM", R"({"sequence_length":512})");
  REQUIRE(answer.one_node.has_value());
  CHECK(answer.one_node->plan.cluster.nodes == 1);
  CHECK(answer.one_node->result.fits);
  CHECK_FALSE(ask(kSmall, "1x4xA100-80G-SXM", R"({"sequence_length":512})").one_node.has_value());
}

TEST_CASE("on one GPU the Trainer alone is named where it is faster, as it is planned alone") {
  const std::string small_states = R"({"optimizer":"adamw8bit")";
  const tuner::FitAnswer open = ask("\"qwen3-1.7b\"", "1x1xRTX4090", small_states + "}");
  REQUIRE(open.recommended.has_value());
  REQUIRE(open.without_deepspeed.has_value());
  const tuner::StrategyResult& alone = *open.without_deepspeed;
  CHECK(alone.result.fits);
  CHECK(tuner::comparable_speed(alone) >
        tuner::comparable_speed(open.strategies[*open.recommended]));
  const tuner::FitAnswer asked =
      ask("\"qwen3-1.7b\"", "1x1xRTX4090", small_states + R"(,"engine":"ddp"})");
  REQUIRE(asked.recommended.has_value());
  const tuner::StrategyResult& best = asked.strategies[*asked.recommended];
  CHECK(best.result.gpu.peak_total == alone.result.gpu.peak_total);
  CHECK(best.result.step.total == alone.result.step.total);
  CHECK_FALSE(asked.without_deepspeed.has_value());
  CHECK_FALSE(ask("\"qwen3-1.7b\"", "1x1xRTX4090", small_states + R"(,"engine":"deepspeed"})")
                  .without_deepspeed.has_value());
}

TEST_CASE("a search does not accumulate where its releases stop in no_sync") {
  const auto under = [](const std::string& workload) {
    return tuner::fit(parse_scenario(
        parse_json(R"({"model":)" + kSmall + R"(,"cluster":"1x4xA100-80G-SXM","workload":)" +
                       workload + R"(,"software":{"deepspeed":"0.16.0","transformers":"4.46.1"}})",
                   "s.json")
            .root,
        "s.json"));
  };
  const tuner::FitAnswer answer = under(R"({"sequence_length":512})");
  REQUIRE(answer.recommended.has_value());
  for (const tuner::StrategyResult& item : answer.strategies) {
    CHECK(item.plan.workload.gradient_accumulation_steps == 1);
  }
  const tuner::FitAnswer whole = under(R"({"sequence_length":512,"global_batch_size":64})");
  REQUIRE(whole.recommended.has_value());
  CHECK(whole.strategies[*whole.recommended].plan.workload.micro_batch_size == 16);
  CHECK_THROWS_AS(under(R"({"sequence_length":512,"micro_batch_size":2,"global_batch_size":64})"),
                  InputError);
}

TEST_CASE("what releases refuse is left out, and the others are the answer") {
  const tuner::FitAnswer answer =
      tuner::fit(parse_scenario(parse_json(
                                    R"({"model":"llama-3-8b","cluster":"4xA100-80G-SXM",
          "software":{"deepspeed":"0.15.0","transformers":"4.43.4"}})",
                                    "s.json")
                                    .root,
                                "s.json"));
  REQUIRE(answer.recommended);
  CHECK(answer.strategies[*answer.recommended].strategy.stage == 2);
  for (const tuner::StrategyResult& row : answer.strategies) CHECK(row.strategy.stage < 3);
}
