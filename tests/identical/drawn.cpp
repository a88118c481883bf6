#include "tests/identical/drawn.hpp"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/parallel_for.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::identical {
namespace {

// At least one of each class that is modelled.
constexpr const char* kModels[] = {
    "gpt2",           "gpt2-xl",         "opt-125m",        "opt-1.3b",
    "bloom-560m",     "bloom-7b1",       "pythia-410m",     "pythia-6.9b",
    "gpt-j-6b",       "falcon-7b",       "mpt-7b",          "starcoder-15b",
    "starcoder2-3b",  "phi-2",           "phi-3-mini",      "phi-4-mini",
    "tinyllama-1.1b", "llama-7b",        "llama-2-13b",     "llama-3-8b",
    "llama-3.2-1b",   "llama-2-70b",     "mistral-7b-v0.3", "mixtral-8x7b",
    "qwen2.5-0.5b",   "qwen2.5-7b",      "qwen3-0.6b",      "qwen3-30b-a3b",
    "qwen3.5-2b",     "qwen3.5-35b-a3b", "gemma-2b",        "gemma-2-2b",
    "gemma-3-1b",     "olmo-1b",         "olmo-2-7b",       "smollm3-3b",
    "granite-3.3-2b", "glm-4-9b",        "glm-4-9b-0414",   "command-r7b",
    "internlm2-7b",   "baichuan2-7b",    "chatglm3-6b",     "deepseek-v2-lite",
    "gpt-oss-20b",    "bert-base-cased", "roberta-large",   "t5-base"};

// What a model's nine scenarios are about.
enum class Kind {
  partitioned,  // stages 0 to 2
  sharded,      // stage 3
  offloaded,    // optimizer or weights on CPU
  on_drives,    // the same on NVMe
  fsdp,
  ddp,
  divided,      // pipeline, tensor and sequence parallelism
  preferences,  // TRL's trainers
  embedded,
};
constexpr int kKinds = 9;

// SplitMix64: the same draws with every library.
class Draws {
 public:
  Draws(std::string_view model, int kind) : state_(static_cast<std::uint64_t>(kind)) {
    for (const char c : model) state_ = (state_ ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }

  std::int64_t below(std::int64_t count) {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return static_cast<std::int64_t>((z ^ (z >> 31)) % static_cast<std::uint64_t>(count));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return *(choices.begin() + below(static_cast<std::int64_t>(choices.size())));
  }

 private:
  std::uint64_t state_;
};

Json software(Draws& draw) {
  struct Set {
    const char *deepspeed, *torch, *transformers;
  };
  const Set set = draw.one_of<Set>({{"0.12.6", "2.1.2", "4.36.2"},
                                    {"0.14.2", "2.2.0", "4.40.2"},
                                    {"0.16.4", "2.6.0", "4.50.3"},
                                    {"0.18.9", "2.10.0", "4.57.6"},
                                    {"0.19.6", "2.11.0", "5.17.0"},
                                    {"0.19.8", "2.15.0", "5.24.0"}});
  return Json::object(
      {{"deepspeed", set.deepspeed}, {"torch", set.torch}, {"transformers", set.transformers}});
}

Json cluster(Draws& draw, Kind kind) {
  Json document = Json::object({{"nodes", draw.one_of<std::int64_t>({1, 1, 1, 2, 4})},
                                {"gpus_per_node", draw.one_of<std::int64_t>({1, 2, 4, 8, 8})},
                                {"gpu",
                                 draw.one_of<const char*>({"A100-80G-SXM",
                                                           "A100-40G-PCIe",
                                                           "A800-80G-SXM",
                                                           "H100-80G-SXM",
                                                           "H200-141G-SXM",
                                                           "L40S-48G",
                                                           "A10-24G",
                                                           "RTX-3090",
                                                           "RTX-4090",
                                                           "V100-32G-SXM"})}});
  if (kind == Kind::divided) document["gpus_per_node"] = 8;
  if (kind == Kind::embedded) document["nodes"] = 1;
  if (kind == Kind::on_drives) {
    document["nvme"] = Json::object({{"read_bandwidth", 6e9},
                                     {"write_bandwidth", 3e9},
                                     {"capacity_bytes", std::int64_t{4'000'000'000'000}}});
  }
  return document;
}

Json zero(Draws& draw, Kind kind) {
  std::int64_t stage = 3;
  if (kind == Kind::partitioned || kind == Kind::ddp) stage = draw.below(3);
  if (kind == Kind::fsdp) stage = draw.one_of<std::int64_t>({0, 2, 3, 3});
  if (kind == Kind::offloaded) stage = draw.one_of<std::int64_t>({1, 2, 3, 3});
  if (kind == Kind::divided) stage = draw.one_of<std::int64_t>({0, 1});
  if (kind == Kind::preferences || kind == Kind::embedded) stage = draw.below(4);
  Json zero = Json::object({{"stage", stage}});
  if (kind == Kind::ddp) return zero;
  if (kind == Kind::offloaded || kind == Kind::on_drives) {
    const char* device = kind == Kind::on_drives ? "nvme" : "cpu";
    Json place = Json::object({{"device", device}, {"pin_memory", draw.chance(60)}});
    if (kind == Kind::on_drives) place["nvme_path"] = "/local";
    zero["offload_optimizer"] = place;
    if (stage == 3 && draw.chance(50)) zero["offload_param"] = place;
  }
  if (draw.chance(40))
    zero["reduce_bucket_size"] = draw.one_of<std::int64_t>({5'000'000, 50'000'000, 1'000'000'000});
  if (draw.chance(40)) zero["overlap_comm"] = draw.chance(50);
  if (draw.chance(30)) zero["contiguous_gradients"] = draw.chance(50);
  if (stage != 3) return zero;
  if (draw.chance(40))
    zero["stage3_prefetch_bucket_size"] = draw.one_of<std::int64_t>({0, 1'000'000, 100'000'000});
  if (draw.chance(40))
    zero["stage3_max_live_parameters"] = draw.one_of<std::int64_t>({10'000'000, 1'000'000'000});
  if (draw.chance(40))
    zero["stage3_param_persistence_threshold"] = draw.one_of<std::int64_t>({0, 10'000, 10'000'000});
  if (draw.chance(30))
    zero["sub_group_size"] = draw.one_of<std::int64_t>({20'000'000, 1'000'000'000});
  return zero;
}

Json method(Draws& draw) {
  const std::int64_t rank = draw.one_of<std::int64_t>({8, 64});
  const auto drawn = draw.below(10);
  if (drawn < 6) return "full";
  if (drawn < 8) return Json::object({{"lora", Json::object({{"rank", rank}})}});
  return Json::object({{"qlora", Json::object({{"rank", rank}})}});
}

Json trainer(Draws& draw) {
  const char* name = draw.one_of<const char*>({"dpo", "kto", "grpo", "ppo"});
  return Json(name);
}

Json workload(Draws& draw, Kind kind) {
  Json workload = Json::object(
      {{"sequence_length", draw.one_of<std::int64_t>({128, 512, 500, 1024, 2048, 4096})},
       {"micro_batch_size", draw.one_of<std::int64_t>({1, 1, 2, 3, 4, 8, 16})},
       {"gradient_accumulation_steps", draw.one_of<std::int64_t>({1, 1, 2, 7})},
       {"precision", draw.one_of<const char*>({"bf16", "bf16", "bf16", "fp16", "fp32"})},
       {"optimizer",
        draw.one_of<const char*>(
            {"adamw", "adamw", "adamw", "lion", "sgd", "adafactor", "adamw8bit"})},
       {"attention", draw.one_of<const char*>({"sdpa", "sdpa", "eager", "flash"})},
       {"activation_checkpointing", draw.one_of<const char*>({"none", "full", "full"})},
       {"frontend", draw.one_of<const char*>({"hf-trainer", "native"})},
       {"fused_loss", draw.chance(20)},
       {"method", method(draw)}});
  if (draw.chance(20)) workload["checkpoint_reentrant"] = draw.chance(50);
  if (draw.chance(15)) {
    workload["dataset"] = Json::object({{"samples", std::int64_t{5000}},
                                        {"mean_tokens", std::int64_t{300}},
                                        {"tokens_sd", std::int64_t{150}}});
  }
  switch (kind) {
    case Kind::fsdp:
      workload["engine"] = "fsdp";
      workload["fsdp_version"] = draw.one_of<std::int64_t>({1, 2});
      break;
    case Kind::ddp:
      workload["engine"] = "ddp";
      break;
    case Kind::embedded:
      workload["engine"] = "embedded";
      workload["frontend"] = "native";
      workload["method"] = "full";
      workload["optimizer"] = "adamw";
      break;
    case Kind::divided: {
      const char* degree =
          draw.one_of<const char*>({"pipeline_parallel", "tensor_parallel", "sequence_parallel"});
      workload[degree] = draw.one_of<std::int64_t>({2, 4});
      workload["frontend"] = "native";
      workload["gradient_accumulation_steps"] = 8;
      workload["method"] = "full";
      break;
    }
    case Kind::preferences:
      workload["trainer"] = trainer(draw);
      workload["frontend"] = "hf-trainer";
      break;
    default:
      if (draw.chance(15)) workload["evaluation"] = draw.one_of<const char*>({"loss", "logits"});
      break;
  }
  return workload;
}

Drawn drawn(const char* model, int number) {
  const Kind kind = static_cast<Kind>(number);
  Draws draw(model, number);
  const Json work = workload(draw, kind);
  const std::string& precision = work.find("precision")->as_string();
  Json config = Json::object({{"zero_optimization", zero(draw, kind)}});
  config["bf16"] = Json::object({{"enabled", precision == "bf16"}});
  config["fp16"] = Json::object({{"enabled", precision == "fp16"}});
  return {"drawn/" + std::string(model) + "/" + std::to_string(number),
          Json::object({{"model", model},
                        {"cluster", cluster(draw, kind)},
                        {"workload", work},
                        {"software", software(draw)},
                        {"ds_config", config}})};
}

}  // namespace

const std::vector<Drawn>& drawn_scenarios() {
  static const std::vector<Drawn> all = [] {
    std::vector<Drawn> scenarios;
    for (const char* model : kModels) {
      for (int number = 0; number < kKinds; ++number) scenarios.push_back(drawn(model, number));
    }
    return scenarios;
  }();
  return all;
}

std::vector<Line> drawn_lines() {
  const std::vector<Drawn>& all = drawn_scenarios();
  std::vector<Line> lines(all.size());
  parallel_for(all.size(), 2, [&](std::size_t i) {
    Line& line = lines[i];
    try {
      const Scenario scenario = parse_scenario(all[i].scenario, all[i].id);
      line = answer_to(all[i].id, scenario, std::nullopt).line;
    } catch (const InputError& error) {
      line.id = all[i].id;
      line.refusal = in_one_line(error.what());
    }
  });
  return lines;
}

}  // namespace zeroplan::identical
