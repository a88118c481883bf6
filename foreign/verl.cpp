// Sources: verl/trainer/config/_generated_ppo_trainer.yaml, workers/fsdp_workers.py,
// workers/actor/dp_actor.py of January 2026.
#include "foreign/verl.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "foreign/unplanned.hpp"

namespace zeroplan::foreign {
namespace {

class VerlReader {
 public:
  VerlReader(const Setting& first, const PartsByKey& parts, Meaning& meaning)
      : first_(first), trainer_(parts, ScenarioKey::trainer), meaning_(meaning) {}

  void finish() {
    refuse_others();
    meaning_.native = true;
    set(ScenarioKey::engine, "fsdp");
    set(ScenarioKey::fsdp_version,
        std::int64_t{trainer_.text("strategy", "fsdp") == "fsdp2" ? 2 : 1});
    set(ScenarioKey::ds_config, sharding());
    set_batch();
    set(ScenarioKey::checkpoint_reentrant, false);
    set(ScenarioKey::dataset, Json::object({{"padding", "packed"}}));
    set(ScenarioKey::trainer, Json::object({{"grpo", rewards()}}));
    say_what_is_left_out();
  }

 private:
  void set(ScenarioKey key, Json value) {
    if (meaning_.scenario.find(key) != nullptr) return;
    meaning_.scenario.set(key, std::move(value), {first_.file, "verl"});
  }
  void assume(const Phrase& sentence) { meaning_.assumed.push_back(sentence); }

  void refuse_others() const {
    const std::string strategy = trainer_.text("strategy", "fsdp");
    if (strategy != "fsdp" && strategy != "fsdp2") {
      refuse(first_, phrase("verl's strategy {} (fsdp and fsdp2 are planned)", strategy));
    }
    if (trainer_.text("estimator", "gae") == "gae") {
      refuse(first_,
             "a critic that trains on the policy's GPUs, in processes of its own "
             "(advantage estimator gae)");
    }
  }

  // reduce_dtype is fp32. A group is the mesh's inner dimension, which -1 makes all GPUs.
  Json sharding() const {
    Json zero = Json::object({{"stage", trainer_.on("reshards", true) ? 3 : 2}});
    const std::int64_t group = trainer_.count("group", -1);
    if (group > 0) zero["mics_shard_size"] = group;
    if (trainer_.on("offloads")) zero["offload_param"] = Json::object({{"device", "cpu"}});
    return Json::object({{"zero_optimization", zero}, {"communication_data_type", "fp32"}});
  }

  std::int64_t longest() const {
    constexpr std::int64_t kTokens = 512;
    return trainer_.count("prompt_tokens", kTokens) + trainer_.count("completion_length", kTokens);
  }

  // Samples of an optimizer step are those of a mini-batch, each of n completions.
  void set_batch() {
    if (!trainer_.on("dynamic_batch")) {
      set(ScenarioKey::sequence_length, longest());
      set(ScenarioKey::global_batch_size,
          trainer_.count("mini_batch", 256) *
              std::max<std::int64_t>(1, trainer_.count("completions", 1)));
      return;
    }
    const std::int64_t tokens = std::max(trainer_.count("dynamic_tokens", 16384), longest());
    set(ScenarioKey::sequence_length, tokens);
    set(ScenarioKey::micro_batch_size, std::int64_t{1});
    set(ScenarioKey::gradient_accumulation_steps, std::int64_t{1});
    assume(phrase(
        "use_dynamic_bsz: a micro-batch is planned as one row of {} tokens, which it has at "
        "most; a step's time is that of one of them, and attention within a sample costs less",
        tokens));
  }

  Json rewards() const {
    Json settings = Json::object({{"code", "verl"}, {"beta", 0}});
    settings["completions"] = std::max<std::int64_t>(1, trainer_.count("completions", 1));
    settings["completion_length"] =
        std::max<std::int64_t>(1, trainer_.count("completion_length", 512));
    if (trainer_.text("server", "vllm") == "hf") {
      settings["generation"] = "trainer";
      return settings;
    }
    settings["generation"] = "colocated";
    settings["memory_share"] = trainer_.number("memory_share", 0.5);
    settings["sleeps"] = trainer_.on("sleeps", true);
    settings["generation_tensor_parallel"] =
        std::max<std::int64_t>(1, trainer_.count("generation_tensor_parallel", 2));
    return settings;
  }

  void say_what_is_left_out() {
    // Liger's kernels stand in the model; the loss is the command's own, which reads all logits.
    if (trainer_.on("liger")) set(ScenarioKey::fused_loss, true);
    if (trainer_.on("weights_sleep") || trainer_.on("states_sleep")) {
      assume(
          "the actor's weights and states are counted while the rollout runs, those that "
          "param_offload "
          "and optimizer_offload move to the host then, too; in its step they are on the GPU");
    }
    if (trainer_.on("reference_in_loss") || trainer_.on("reference_in_reward")) {
      assume(
          "the reference's weights wait in host memory, where verl keeps them (CPUOffload); its "
          "passes "
          "before the step, a layer's weights at a time, are not planned");
    }
    if (trainer_.on("pads")) {
      assume(
          "use_remove_padding False is planned as True: padding is removed, and all tokens are "
          "scored");
    }
    if (trainer_.on("calculates_entropy") || trainer_.number("entropy", 0.0) != 0.0) {
      assume(
          "the entropy of the policy's tokens, which a compiled function makes of the logits, is "
          "not "
          "planned");
    }
    if (trainer_.on("reward_model")) {
      assume("the reward model runs on the policy's GPUs before the step and is not planned");
    }
    assume(
        "FlashAttention is installed, whose cross entropy verl's loss takes; it costs more memory "
        "without");
  }

  const Setting& first_;
  Parts trainer_;
  Meaning& meaning_;
};

}  // namespace

// Adapters where a rank is above 0, on all linear layers.
void prepare_verl(PartsByKey& parts) {
  const auto adapters = parts.find(ScenarioKey::method);
  if (adapters == parts.end()) return;
  Json& object = adapters->second.object;
  const Json* rank = object.find("rank");
  const bool lora = rank != nullptr && rank->is_number() && rank->as_number() > 0.0;
  if (lora) object["rank"] = static_cast<std::int64_t>(rank->as_number());
  object["kind"] = lora ? "lora" : "full";
  if (object.find("targets") == nullptr) object["targets"] = Json::array({"all-linear"});
}

void finish_verl(const Setting& first, const PartsByKey& parts, Meaning& meaning) {
  VerlReader(first, parts, meaning).finish();
}

}  // namespace zeroplan::foreign
