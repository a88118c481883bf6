#include "tuner/remedies.hpp"

#include <algorithm>
#include <string>

#include "model/plan/scenario_reader.hpp"
#include "model/plan/trainer.hpp"
#include "simulator/simulate.hpp"
#include "tests/catch.hpp"
#include "tuner/fit_question.hpp"

using namespace zeroplan;

namespace {

Scenario scenario_of(const std::string& model,
                     const std::string& cluster,
                     const std::string& workload,
                     const std::string& more = "") {
  const std::string text = R"({"model":")" + model + R"(","cluster":")" + cluster +
                           R"(","workload":)" + workload + more + "}";
  return parse_scenario(parse_json(text, "s.json").root, "s.json");
}

// Of a plan as it stands.
tuner::Remedies remedies_of(const Scenario& scenario, std::optional<Bytes> capacity = {}) {
  const tuner::Variations variations(scenario, capacity);
  const StepResult result = tuner::played(variations.base(), {});
  REQUIRE_FALSE(result.fits);
  return tuner::find_remedies(variations, result, {});
}

const tuner::TriedRemedy& first(const tuner::Remedies& remedies) {
  REQUIRE_FALSE(remedies.that_fit.empty());
  return remedies.tried[remedies.that_fit.front()];
}

bool names(const tuner::Remedies& remedies, const std::string& words) {
  return std::any_of(remedies.that_fit.begin(), remedies.that_fit.end(), [&](std::size_t i) {
    return remedies.tried[i].change.english().find(words) != std::string::npos;
  });
}

const char* const kZero2 =
    R"(,"ds_config":{"bf16":{"enabled":true},"zero_optimization":{"stage":2}})";
const char* const kZero3 =
    R"(,"ds_config":{"bf16":{"enabled":true},"zero_optimization":{"stage":3}})";

}  // namespace

TEST_CASE("every remedy was simulated and fits, in the order of prices") {
  const tuner::Remedies remedies =
      remedies_of(scenario_of("llama-2-7b", "8xA100-40G", R"({"sequence_length":4096})", kZero2));
  tuner::RemedyPrice before = tuner::RemedyPrice::nothing;
  for (const std::size_t i : remedies.that_fit) {
    const tuner::TriedRemedy& one = remedies.tried[i];
    INFO(one.change.english());
    CHECK(one.fits());
    CHECK(one.outcome->simulated);
    CHECK(simulator::simulate(one.outcome->plan).fits);
    CHECK(one.price >= before);
    before = one.price;
  }
  CHECK_FALSE(remedies.that_fit.empty());
}

TEST_CASE("logits are told a loss without logits, not an offload of adapters' states") {
  const tuner::Remedies remedies =
      remedies_of(scenario_of("llama-3.1-8b",
                              "8xA100-80G",
                              R"({"sequence_length":8192,"micro_batch_size":6,"method":"lora",
          "activation_checkpointing":"full"})",
                              kZero3));
  CHECK(first(remedies).change.english().find("--fused-loss true") != std::string::npos);
  CHECK_FALSE(names(remedies, "offload the optimizer"));
}

TEST_CASE("four-bit weights are told a loss without logits, too") {
  const tuner::Remedies remedies = remedies_of(
      scenario_of("llama-3.1-8b",
                  "1xH100",
                  R"({"sequence_length":51974,"method":"qlora","activation_checkpointing":"full"})",
                  kZero3));
  CHECK(first(remedies).change.english().find("--fused-loss true") != std::string::npos);
  CHECK(first(remedies).price == tuner::RemedyPrice::nothing);
}

TEST_CASE("a loop by hand is told to keep the loss alone") {
  const std::string by_hand =
      R"({"sequence_length":4096,"micro_batch_size":3,"frontend":"native","fused_loss":false,
          "activation_checkpointing":"full"})";
  const tuner::Remedies remedies =
      remedies_of(scenario_of("llama-3.2-1b", "2xA100-40G", by_hand, kZero2));
  CHECK(names(remedies, "--outputs-held false"));
  const std::string trainer =
      R"({"sequence_length":4096,"micro_batch_size":5,"fused_loss":false,
          "activation_checkpointing":"full"})";
  CHECK_FALSE(names(remedies_of(scenario_of("llama-3.2-1b", "2xA100-40G", trainer, kZero2)),
                    "--outputs-held"));
}

TEST_CASE("a micro-batch and a length are the largest that fit") {
  const Scenario scenario = scenario_of("qwen2.5-0.5b",
                                        "1xRTX4090",
                                        R"({"sequence_length":2048,"micro_batch_size":64,
                                            "fused_loss":false,"activation_checkpointing":"full"})",
                                        kZero2);
  const tuner::Remedies remedies = remedies_of(scenario);
  const tuner::Variations variations(scenario);
  int sized = 0;
  for (const std::size_t i : remedies.that_fit) {
    const tuner::TriedRemedy& one = remedies.tried[i];
    if (one.variation.changes.size() != 2) continue;
    const auto* key = std::get_if<ScenarioKey>(&one.variation.changes.front().key);
    if (key == nullptr || *key != ScenarioKey::micro_batch_size) continue;
    ++sized;
    const std::int64_t size = one.variation.changes.front().value.as_integer();
    CHECK(64 % size == 0);
    // The next of the batch's divisors does not.
    const tuner::Variation next{
        {{ScenarioKey::micro_batch_size, Json(size * 2)},
         {ScenarioKey::gradient_accumulation_steps, Json(64 / (size * 2))}}};
    if (size < 32) CHECK_FALSE(simulator::simulate(variations.plan(next)).fits);
  }
  CHECK(sized == 1);
}

TEST_CASE("the trap of a release is told the other release") {
  const tuner::Remedies remedies = remedies_of(scenario_of(
      "llama-3-70b",
      "8xA100-80G",
      R"({"sequence_length":2048,"activation_checkpointing":"full","checkpoint_reentrant":false})",
      R"(,"software":{"deepspeed":"0.16.4"},"ds_config":{"bf16":{"enabled":true},
         "zero_optimization":{"stage":3,"offload_optimizer":{"device":"cpu","pin_memory":true}}})"));
  CHECK(names(remedies, "--deepspeed 0.16.8"));
  CHECK(names(remedies, "--checkpoint-reentrant true"));
  for (const std::size_t i : remedies.that_fit) {
    CHECK(remedies.tried[i].price != tuner::RemedyPrice::machines);
  }
}

TEST_CASE("a checkpoint that is whole on each GPU is told a copy in 16 bits") {
  const tuner::Remedies remedies = remedies_of(
      scenario_of("gpt-oss-120b", "8xH200", R"({"method":"lora","sequence_length":1024})", kZero3));
  CHECK(first(remedies).change.english().find("a copy in 16 bits") != std::string::npos);
}

TEST_CASE("gradients that FSDP accumulates are told to be reduced") {
  const tuner::Remedies remedies = remedies_of(
      scenario_of("qwen2.5-32b",
                  "8xH100",
                  R"({"engine":"fsdp","optimizer":"adamw8bit","gradient_accumulation_steps":8,
          "sequence_length":10240,"activation_checkpointing":"full","checkpoint_reentrant":false,
          "attention":"flash"})"));
  CHECK(names(remedies, "--gas 1"));
  CHECK(names(remedies, "--sync-each-batch true"));
}

TEST_CASE("a smaller GPU than the catalog's needs more") {
  const Scenario scenario =
      scenario_of("llama-2-7b", "8xA100-80G", R"({"sequence_length":1024})", kZero2);
  const tuner::Remedies hard = remedies_of(scenario, Bytes::gib(20));
  REQUIRE_FALSE(hard.that_fit.empty());
  for (const std::size_t i : hard.that_fit) CHECK(hard.tried[i].fits());
}

TEST_CASE("where no single change fits they are added up, and none is superfluous") {
  const Scenario scenario = scenario_of("llama-2-7b",
                                        "1xRTX4090",
                                        R"({"sequence_length":2048,"fused_loss":false,
                                                 "micro_batch_size":16})",
                                        kZero2);
  const tuner::Variations variations(scenario, Bytes::gib(12));
  const StepResult result = tuner::played(variations.base(), {});
  const tuner::Remedies remedies = tuner::find_remedies(variations, result, {});
  REQUIRE_FALSE(remedies.that_fit.empty());
  for (const std::size_t i : remedies.that_fit) {
    INFO(remedies.tried[i].change.english());
    CHECK(remedies.tried[i].fits());
  }
}

TEST_CASE("one GPU has nothing to partition over") {
  const Scenario scenario =
      scenario_of("llama-2-7b", "1xA100-80G", R"({"sequence_length":2048})", kZero2);
  const tuner::Variations variations(scenario);
  const tuner::Remedies remedies =
      tuner::find_remedies(variations, tuner::played(variations.base(), {}), {});
  for (const tuner::TriedRemedy& one : remedies.tried) {
    CHECK(one.change.english().find("ZeRO stage") == std::string::npos);
  }
}

TEST_CASE("a change of the file is that change alone: what is printed is what was simulated") {
  const char* const kOnDrive =
      R"(,"ds_config":{"bf16":{"enabled":true},"zero_optimization":{"stage":3,
         "offload_optimizer":{"device":"cpu"},"offload_param":{"device":"nvme"}}})";
  const std::string workload =
      R"({"sequence_length":1024,"micro_batch_size":1,"gradient_accumulation_steps":6,
          "activation_checkpointing":"full"})";
  const Scenario scenario = scenario_of("qwen2.5-7b", "1xA100-80G", workload, kOnDrive);
  const tuner::Variations variations(scenario);
  const Plan moved =
      variations.plan({{{Knob::offload_optimizer_device, Json("nvme")}}, std::nullopt, {}});
  const Plan base = variations.base();
  CHECK(moved.ds_config.text(Knob::offload_optimizer_device) == "nvme");
  CHECK(moved.engine.offload_parameter.buffer_size == base.engine.offload_parameter.buffer_size);
  CHECK(moved.engine.offload_optimizer.pin_memory == base.engine.offload_optimizer.pin_memory);

  // The buffers are too small for the embedding: first of all that is changed.
  const tuner::Remedies remedies = remedies_of(scenario);
  CHECK(names(remedies, "--offload-param.buffer-size 544997376"));
  CHECK(names(remedies, "no offload of the weights"));
}

TEST_CASE("changes that train the same are added up before one that trains something else") {
  const tuner::Remedies remedies =
      remedies_of(scenario_of("qwen2.5-7b",
                              "2xRTX-4090",
                              R"({"sequence_length":4096,"micro_batch_size":8,"method":"qlora",
                      "gradient_accumulation_steps":1,"frontend":"hf-trainer"})",
                              kZero2));
  CHECK(first(remedies).change.english() ==
        "take a loss that never holds all logits: liger-kernel (--fused-loss true); use full "
        "activation checkpointing (--ckpt full)");
  CHECK(first(remedies).price <= tuner::RemedyPrice::speed);
}

TEST_CASE("generation is told to gather part by part, rollouts to be smaller") {
  const Scenario grpo = parse_scenario(
      parse_json(R"({"model":"llama-3.1-70b","cluster":"2x8xH100-80G","workload":{"trainer":"grpo",
        "sequence_length":2048,"micro_batch_size":1,"gradient_accumulation_steps":8,
        "activation_checkpointing":"full"},"ds_config":{"bf16":{"enabled":true},
        "zero_optimization":{"stage":3,"offload_optimizer":{"device":"cpu"},
        "offload_param":{"device":"cpu"}}}})",
                 "s.json")
          .root,
      "s.json");
  CHECK(names(remedies_of(grpo), "ds3_gather_for_generation=False"));
}

TEST_CASE("vLLM beside the training is told to sleep, or a share that holds its weights") {
  const auto grpo = [](const std::string& generation) {
    return scenario_of("qwen2.5-7b",
                       "8xA100-80G",
                       R"({"trainer":{"grpo":{"generation":"colocated","memory_share":0.7)" +
                           generation +
                           R"(}},"sequence_length":2048,"micro_batch_size":1,
                           "activation_checkpointing":"full"})",
                       kZero3);
  };
  const tuner::Remedies remedies = remedies_of(grpo(""));
  CHECK(names(remedies, "vllm_enable_sleep_mode"));
  CHECK(names(remedies, "vllm_gpu_memory_utilization 0."));
  for (const std::size_t i : remedies.that_fit) {
    const tuner::TriedRemedy& one = remedies.tried[i];
    const GenerationSettings& settings = one.outcome->plan.trainer->generation;
    // 7.6 B weights in 16 bits, and the keys and values of a sequence, are 14.3 GiB.
    CHECK(settings.memory_share * 79.15 > 14.3);
  }
}

TEST_CASE("a fused loss and sequences over GPUs are added up where neither alone is enough") {
  const Scenario scenario = scenario_of("llama-3.1-8b",
                                        "8xA100-80G",
                                        R"({"sequence_length":262144,"micro_batch_size":1,
                                        "activation_checkpointing":"full","attention":"flash"})",
                                        kZero3);
  const tuner::Remedies remedies = remedies_of(scenario);
  const std::string change = first(remedies).change.english();
  CHECK(change.find("--fused-loss true") != std::string::npos);
  CHECK(change.find("--sequence-parallel 4 --gas ") != std::string::npos);
}
