#include "tuner/packages.hpp"

#include "model/plan/scenario_reader.hpp"
#include "tests/catch.hpp"

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

std::vector<tuner::Packages> tried(const Scenario& scenario) {
  return tuner::packages_to_try(scenario, resolve(scenario));
}

const tuner::Packages kLoss{.fused_loss = true};
const tuner::Packages kAttention{.flash_attention = true};
const tuner::Packages kLinear{.linear_attention = true};

}  // namespace

TEST_CASE("Liger's loss is tried where it patches the class and nobody decided") {
  CHECK(tried(scenario_of("llama-3.1-8b", "1xRTX4090", "{}")) == std::vector{kLoss});
  CHECK(tried(scenario_of("qwen3-8b", "8xA100-40G", "{}")) == std::vector{kLoss});
  CHECK(tried(scenario_of("llama-3.1-8b", "1xRTX4090", R"({"fused_loss":false})")).empty());
  CHECK(tried(scenario_of("bloom-7b1", "8xA100-40G", "{}")).empty());
  CHECK(tried(scenario_of("starcoder", "3xRTX3090", R"({"method":"lora"})")).empty());
}

TEST_CASE("GPUs before Ampere, CPU ranks, fp32 and plans without a kit get no package") {
  CHECK(tried(scenario_of("llama-3.1-8b", "8xV100-32G", "{}")).empty());
  CHECK(tried(scenario_of("llama-3.1-8b", "8xA100-80G", R"({"precision":"fp32"})")).empty());
  CHECK(tried(scenario_of("llama-3.1-8b", "8xA100-80G", R"({"sequence_parallel":2})")).empty());
}

TEST_CASE("flash-attn is tried where the class has no attention of PyTorch's") {
  CHECK(tried(scenario_of("gpt-j-6b", "8xA100-80G", "{}")) == std::vector{kAttention});
  CHECK(tried(scenario_of("gpt-j-6b", "8xA100-80G", R"({"attention":"eager"})")).empty());
  CHECK(tried(scenario_of("gpt-j-6b", "8xV100-32G", "{}")).empty());
}

TEST_CASE("flash-linear-attention is tried where layers have gated linear attention") {
  const tuner::Packages both{.fused_loss = true, .linear_attention = true};
  CHECK(tried(scenario_of("qwen3.5-4b", "8xA100-80G", "{}")) == std::vector{kLoss, kLinear, both});
  const char* decided = R"({"linear_attention":"torch"})";
  CHECK(tried(scenario_of("qwen3.5-4b", "8xA100-80G", decided)) == std::vector{kLoss});
  CHECK(names_of(both) == "liger-kernel, flash-linear-attention");
  const Scenario chosen =
      tuner::with_packages(scenario_of("qwen3.5-4b", "8xA100-80G", "{}"), kLinear);
  CHECK(tuner::chosen_packages(chosen) == kLinear);
  CHECK(resolve(chosen).workload.linear_attention == LinearAttention::fla);
}

TEST_CASE("mamba_ssm's kernels are tried where layers have Mamba 2's scan") {
  const char* text = R"({"model":{"model_type":"nemotron_h","hybrid_override_pattern":"M-M*",
      "hidden_size":1024,"intermediate_size":4096,"num_attention_heads":16,"vocab_size":32000,
      "num_key_value_heads":4,"head_dim":64,"mamba_num_heads":32,"mamba_head_dim":64},
      "cluster":"8xA100-80G"})";
  const Scenario hybrid = parse_scenario(parse_json(text, "s.json").root, "s.json");
  const tuner::Packages scan{.state_space = true};
  CHECK(tried(hybrid) == std::vector{scan});
  const Scenario chosen = tuner::with_packages(hybrid, scan);
  CHECK(tuner::chosen_packages(chosen) == scan);
  CHECK(resolve(chosen).workload.linear_attention == LinearAttention::mamba_ssm);
}

TEST_CASE("packages that were chosen are known from those that somebody said") {
  const Scenario plain = scenario_of("llama-3.1-8b", "1xRTX4090", "{}");
  CHECK_FALSE(tuner::chosen_packages(plain).any());
  const Scenario chosen = tuner::with_packages(plain, kLoss);
  CHECK(tuner::chosen_packages(chosen) == kLoss);
  CHECK(resolve(chosen).workload.fused_loss);
  CHECK_FALSE(
      tuner::chosen_packages(scenario_of("llama-3.1-8b", "1xRTX4090", R"({"fused_loss":true})"))
          .any());
  CHECK(sentences_of(kLoss).size() == 1);
  CHECK(tuner::names_of({.fused_loss = true, .flash_attention = true}) ==
        "flash-attn, liger-kernel");
}
