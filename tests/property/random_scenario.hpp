// Seeded random scenarios: llama-like models of a few blocks, clusters of named GPUs, every stage
// and offload, random sizes of buckets and limits. Everything drawn is accepted by resolve(): a
// property has no cases to skip.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "model/plan/scenario.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::testing {

class ScenarioGenerator {
 public:
  explicit ScenarioGenerator(std::uint64_t seed) : random_(seed) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + between(0, static_cast<std::int64_t>(choices.size()) - 1));
  }
  // Even on a logarithmic scale.
  std::int64_t size_between(double low, double high) {
    const double exponent =
        std::uniform_real_distribution<double>(std::log(low), std::log(high))(random_);
    return static_cast<std::int64_t>(std::exp(exponent));
  }

  Json model() {
    const std::int64_t head_dim = one_of<std::int64_t>({32, 64, 128});
    const std::int64_t kv_heads = one_of<std::int64_t>({1, 2, 4, 8});
    const std::int64_t heads = kv_heads * one_of<std::int64_t>({1, 2, 4});
    return Json::object({{"model_type", "llama"},
                         {"architectures", Json::array({"LlamaForCausalLM"})},
                         {"hidden_size", heads * head_dim},
                         {"intermediate_size", between(1, 40) * 64},
                         {"num_hidden_layers", between(1, 6)},
                         {"num_attention_heads", heads},
                         {"num_key_value_heads", kv_heads},
                         {"vocab_size", between(100, 40000)},
                         {"max_position_embeddings", 8192},
                         {"rms_norm_eps", 1e-5},
                         {"tie_word_embeddings", chance(0.4)}});
  }

  Json cluster() {
    const std::string nodes = std::to_string(one_of<std::int64_t>({1, 1, 2, 3}));
    const std::string gpus = std::to_string(one_of<std::int64_t>({1, 2, 4, 8}));
    return nodes + "x" + gpus + "x" +
           one_of<const char*>({"A100-80G-SXM", "H100-80G-SXM", "V100-16G-SXM2", "RTX4090"});
  }

  Json zero_section(std::int64_t stage) {
    Json zero = Json::object({{"stage", stage}});
    if (chance(0.6)) zero["reduce_bucket_size"] = size_between(1e4, 1e9);
    if (chance(0.5)) zero["overlap_comm"] = chance(0.5);
    if (chance(0.3)) zero["contiguous_gradients"] = chance(0.5);
    if (chance(0.3)) zero["reduce_scatter"] = chance(0.5);
    if (chance(0.3)) zero["round_robin_gradients"] = chance(0.5);
    if (stage >= 1 && chance(0.4)) {
      zero["offload_optimizer"] = Json::object({{"device", "cpu"}, {"pin_memory", chance(0.5)}});
    }
    if (stage != 3) return zero;
    if (chance(0.4)) {
      zero["offload_param"] = Json::object({{"device", "cpu"}, {"pin_memory", chance(0.5)}});
    }
    if (chance(0.5)) zero["stage3_prefetch_bucket_size"] = size_between(1, 1e9);
    if (chance(0.5)) zero["stage3_max_live_parameters"] = size_between(1e4, 1e10);
    if (chance(0.5)) zero["stage3_max_reuse_distance"] = size_between(1e4, 1e10);
    if (chance(0.5)) zero["stage3_param_persistence_threshold"] = size_between(1, 1e7);
    if (chance(0.3)) zero["sub_group_size"] = size_between(1e5, 1e10);
    if (chance(0.3)) zero["stage3_gather_16bit_weights_on_model_save"] = chance(0.5);
    return zero;
  }

  // A whole scenario of that stage.
  Json scenario(std::int64_t stage) {
    const char* precision = one_of<const char*>({"bf16", "fp16", "fp32"});
    Json ds_config = Json::object({{"zero_optimization", zero_section(stage)}});
    ds_config["bf16"] = Json::object({{"enabled", std::string_view(precision) == "bf16"}});
    ds_config["fp16"] = Json::object({{"enabled", std::string_view(precision) == "fp16"}});
    const Json workload =
        Json::object({{"sequence_length", between(1, 32) * 64},
                      {"micro_batch_size", between(1, 4)},
                      {"gradient_accumulation_steps", one_of<std::int64_t>({1, 1, 2, 5})},
                      {"activation_checkpointing", one_of<const char*>({"none", "full"})},
                      {"checkpoint_reentrant", chance(0.5)},
                      {"fused_loss", chance(0.2)},
                      {"attention", one_of<const char*>({"eager", "sdpa"})},
                      {"frontend", one_of<const char*>({"hf-trainer", "native"})},
                      {"precision", precision}});
    const std::string_view deepspeed =
        one_of<const char*>({"0.12.6", "0.14.5", "0.16.4", "0.19.6"});
    const char* torch = one_of<const char*>({"2.1", "2.6"});
    std::string_view transformers = one_of<const char*>({"4.40", "4.50"});
    // Where DeepSpeed has no_sync, an older Trainer stops in it (model/plan/release_pairs.hpp).
    if (transformers == "4.40" && deepspeed >= "0.16") transformers = "4.48";
    const Json software = Json::object({{"deepspeed", std::string(deepspeed)},
                                        {"torch", torch},
                                        {"transformers", std::string(transformers)}});
    return Json::object({{"model", model()},
                         {"cluster", cluster()},
                         {"workload", workload},
                         {"software", software},
                         {"ds_config", ds_config}});
  }
  Json scenario() { return scenario(between(0, 3)); }

 private:
  std::mt19937_64 random_;
};

inline Scenario read(const Json& document) { return parse_scenario(document, "random"); }

}  // namespace zeroplan::testing
