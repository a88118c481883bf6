// Sources: openrlhf/cli/train_sft.py, train_dpo.py, train_ppo_ray.py, utils/deepspeed/deepspeed.py
// and deepspeed_utils.py, trainer/ray/launcher.py of 0.7 to 0.11.0.
#include "foreign/openrlhf.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/written_names.hpp"
#include "foreign/taken.hpp"
#include "foreign/unplanned.hpp"

namespace zeroplan::foreign {
namespace {

constexpr std::string_view kRewards = "train_ppo_ray";
constexpr std::string_view kPlanned = "train_sft|train_dpo|train_ppo_ray";

bool trains_by_rewards(const Setting& command) { return text_of(command.value) == kRewards; }

class OpenrlhfReader {
 public:
  OpenrlhfReader(const Setting& command, const PartsByKey& parts, Meaning& meaning)
      : command_(command),
        config_(parts, ScenarioKey::ds_config),
        trainer_(parts, ScenarioKey::trainer),
        models_(parts, ScenarioKey::models),
        samples_(parts, ScenarioKey::dataset),
        meaning_(meaning),
        rewards_(trains_by_rewards(command)) {}

  void finish() {
    meaning_.native = true;
    set_attention();
    set_lengths();
    set(ScenarioKey::engine, "deepspeed");
    set(ScenarioKey::ds_config, ds_config());
    // Off unless a flag says so, whatever another trainer or transformers takes.
    set(ScenarioKey::activation_checkpointing, "none");
    set(ScenarioKey::checkpoint_reentrant, false);
    if (rewards_) {
      set_rewards();
    } else {
      set_preferences();
    }
    say_what_is_left_out();
  }

 private:
  void set(ScenarioKey key, Json value) {
    if (meaning_.scenario.find(key) != nullptr) return;
    meaning_.scenario.set(key, std::move(value), {command_.file, text_of(command_.value)});
  }
  void assume(const Phrase& sentence) { meaning_.assumed.push_back(sentence); }
  std::int64_t said_sequence() const {
    const ExplicitValue* said = meaning_.scenario.find(ScenarioKey::sequence_length);
    return said == nullptr ? 0 : std::max<std::int64_t>(count_of(said->value), 0);
  }

  // Without padding the rows of a batch are one row of FlashAttention's (validation of every
  // command: packing_samples beside another attention takes it).
  void set_attention() {
    const ExplicitValue* said = meaning_.scenario.find(ScenarioKey::attention);
    const bool packs = samples_.find("padding") != nullptr || config_.on("dynamic_batch");
    if (!packs || said == nullptr || said->value == Json("flash")) return;
    meaning_.scenario.set(ScenarioKey::attention, "flash", {command_.file, "packing_samples"});
    assume("packing_samples takes flash_attention_2, whatever attn_implementation says");
  }

  // train_ppo_ray.py before 0.9.8 has a prompt's and a completion's, 1,024 each.
  void set_lengths() {
    const std::string command = text_of(command_.value);
    const bool parts =
        rewards_ && said_sequence() == 0 && trainer_.find("prompt_tokens") != nullptr;
    constexpr std::int64_t kTokens = 1024;
    if (parts) {
      set(ScenarioKey::sequence_length,
          trainer_.count("prompt_tokens", kTokens) + trainer_.count("completion_length", kTokens));
    } else if (said_sequence() == 0) {
      const std::int64_t usual = command == "train_dpo" ? 512 : 2048;
      meaning_.assume(ScenarioKey::sequence_length,
                      usual,
                      phrase("max_len {}: the default of OpenRLHF's {}", usual, command));
    }
    if (!config_.on("dynamic_batch")) return;
    const std::int64_t tokens = std::max(config_.count("dynamic_tokens", 16192), said_sequence());
    meaning_.scenario.set(
        ScenarioKey::sequence_length, tokens, {command_.file, "train.max_tokens_per_gpu"});
    assume(phrase(
        "dynamic_batch_enable: a micro-batch is planned as one row of {} tokens, which it has "
        "at most; a step's time is that of one of them, and attention within a sample costs "
        "less",
        tokens));
  }

  // The file that get_train_ds_config makes; "auto" is DeepSpeed's default there, as no Trainer
  // fills it in. AutoTP's ranks are no data-parallel ones, so that the batch is the file's here
  // without OpenRLHF's factor of them.
  Json ds_config() {
    const std::int64_t stage = config_.count("stage", 2);
    const std::string dtype = config_.text("dtype", "bf16");
    Json zero = Json::object({{"stage", stage}});
    zero["offload_param"] = Json::object({{"device", "none"}});
    zero["offload_optimizer"] = Json::object(
        {{"device", config_.on("adam_offload") ? "cpu" : "none"}, {"pin_memory", true}});
    if (config_.count("zpg", 1) > 1) zero["zero_hpz_partition_size"] = config_.count("zpg", 1);
    if (config_.on("overlap_comm")) zero["overlap_comm"] = zero["contiguous_gradients"] = true;
    if (stage == 3) zero["reduce_scatter"] = true;
    Json config = Json::object();
    const bool dynamic = config_.on("dynamic_batch");
    config["train_micro_batch_size_per_gpu"] =
        dynamic ? std::int64_t{1} : config_.count("micro_batch", usual_micro_batch());
    if (dynamic) {
      config["gradient_accumulation_steps"] = 1;
    } else {
      config["train_batch_size"] = config_.count("batch", 128);
    }
    config["gradient_clipping"] = config_.number("max_norm", 1.0);
    config["bf16"] = Json::object({{"enabled", dtype == "bf16"}});
    config["fp16"] = Json::object({{"enabled", dtype == "fp16"}});
    config["zero_optimization"] = zero;
    if (const Json* accumulated = config_.find("grad_accum_dtype")) {
      config["data_types"] = Json::object({{"grad_accum_dtype", *accumulated}});
    }
    if (config_.count("tensor_parallel", 1) > 1) {
      config["tensor_parallel"] =
          Json::object({{"autotp_size", config_.count("tensor_parallel", 1)}});
    }
    const Json* rate = config_.find("learning_rate");
    Json optimizer = Json::object({{"type", config_.text("optimizer", "AdamW")}});
    if (rate != nullptr) optimizer["params"] = Json::object({{"lr", *rate}});
    config["optimizer"] = optimizer;
    say_defaults(stage);
    return config;
  }

  std::int64_t usual_micro_batch() const { return rewards_ ? 1 : 8; }

  void say_defaults(std::int64_t stage) {
    const std::string command = text_of(command_.value);
    const auto say = [&](std::string_view part, std::string_view name, const std::string& value) {
      if (config_.find(part) != nullptr) return;
      assume(phrase("{} {}: the default of OpenRLHF's {}", name, value, command));
    };
    if (!config_.on("dynamic_batch")) {
      say("micro_batch", "micro_batch_size", std::to_string(usual_micro_batch()));
      say("batch", "batch_size", "128");
    }
    say("stage", "zero_stage", std::to_string(stage));
    say("dtype", "param_dtype", "bf16");
  }

  // Where nothing is said it is cut at stage 3 and whole below, as plans have it.
  static Json beside(const char* role, const Json* model, bool offload) {
    Json one = Json::object({{"role", role}});
    if (model != nullptr) one["model"] = *model;
    if (offload) one["placement"] = "cpu";
    return one;
  }

  void set_preferences() {
    Json settings = Json::object({{"code", "openrlhf"}});
    if (text_of(command_.value) == "train_sft") {
      return set(ScenarioKey::trainer, Json::object({{"sft", settings}}));
    }
    if (const Json* beta = trainer_.find("beta")) settings["beta"] = *beta;
    set(ScenarioKey::trainer, Json::object({{"dpo", settings}}));
    const Json* reference = models_.find("reference");
    const ExplicitValue* trained = meaning_.scenario.find(ScenarioKey::model);
    // Its default is the trained model's.
    const bool same = reference != nullptr && trained != nullptr && *reference == trained->value;
    Json list = Json::array();
    list.push_back(
        beside("reference", same ? nullptr : reference, models_.on("reference_offload")));
    set(ScenarioKey::models, list);
  }

  void set_rewards() {
    Json settings = Json::object({{"code", "openrlhf"}});
    const bool together = trainer_.on("colocates_all");
    check_critic(together);
    const double penalty = trainer_.number("beta", 0.01);
    const bool reference = penalty > 0.0 && (together || trainer_.on("colocates_reference"));
    settings["beta"] = reference ? penalty : 0.0;
    settings["completions"] = std::max<std::int64_t>(1, trainer_.count("completions", 1));
    const std::int64_t longest = std::max<std::int64_t>(said_sequence(), 1);
    settings["completion_length"] =
        std::clamp<std::int64_t>(trainer_.count("completion_length", longest), 1, longest);
    add_generation(together, settings);
    set(ScenarioKey::trainer, Json::object({{"grpo", settings}}));
    set_models(together, reference);
    if (penalty > 0.0 && !reference) {
      assume("the reference model runs on GPUs of its own, which are not planned");
    }
  }

  void add_generation(bool together, Json& settings) const {
    if (trainer_.count("engines", 0) == 0) {
      settings["generation"] = "trainer";
    } else if (!together || trainer_.on("asynchronous")) {
      settings["generation"] = "server";
    } else {
      settings["generation"] = "colocated";
      settings["memory_share"] = trainer_.number("memory_share", 0.95);
      settings["sleeps"] = trainer_.on("sleeps");
      settings["generation_tensor_parallel"] =
          std::max<std::int64_t>(1, trainer_.count("generation_tensor_parallel", 1));
    }
  }

  // gae, which is the default, trains a critic, in processes of its own.
  void check_critic(bool together) {
    const std::string estimator = trainer_.text("estimator", "gae");
    if (estimator != "gae") return;
    if (together) {
      refuse(command_,
             "a critic that trains on the policy's GPUs, in processes of its own "
             "(advantage estimator gae)");
    }
    assume("the critic of gae trains on GPUs of its own, which are not planned");
  }

  void set_models(bool together, bool reference) {
    const bool offload = models_.on("offload");
    Json list = Json::array();
    if (reference) {
      list.push_back(beside("reference", nullptr, offload || models_.on("reference_offload")));
    }
    const Json* reward = models_.find("reward");
    if (reward != nullptr && models_.find("remote_reward") == nullptr) {
      if (together) {
        list.push_back(beside("reward", reward, offload || models_.on("reward_offload")));
      } else {
        assume("the reward model runs on GPUs of its own, which are not planned");
      }
    }
    if (list.items().empty()) return;
    set(ScenarioKey::models, list);
    assume(
        "each model beside the policy is a process of its own on its GPU: its CUDA context and "
        "what "
        "its allocator keeps are not counted");
  }

  void say_what_is_left_out() {
    // Liger's kernels stand in the model; the loss is the command's own, which reads all logits.
    if (trainer_.on("liger")) set(ScenarioKey::fused_loss, true);
    if (trainer_.on("states_sleep")) {
      assume(
          "DeepSpeed's states are counted while vLLM generates: those that ds.enable_sleep moves "
          "to "
          "the host then, too");
    }
    if (trainer_.find("entropy") != nullptr) {
      assume(
          "the entropy of the policy's tokens, which a compiled function makes of the logits, is "
          "not planned");
    }
    if (trainer_.find("evaluates") != nullptr) {
      assume(
          "OpenRLHF's evaluation, forward passes of the same batch without gradients, is not "
          "planned");
    }
    assume(
        "FlashAttention is installed, whose cross entropy OpenRLHF's loss takes; it costs more "
        "memory without");
  }

  const Setting& command_;
  Parts config_, trainer_, models_, samples_;
  Meaning& meaning_;
  bool rewards_;
};

}  // namespace

std::string command_of_openrlhf(const std::string& script) {
  constexpr std::string_view kModule = "openrlhf.cli.";
  if (script.starts_with(kModule)) return script.substr(kModule.size());
  constexpr std::string_view kFolder = "openrlhf/cli/";
  const std::size_t at = script.rfind(kFolder);
  if (at == std::string::npos || !script.ends_with(".py")) return "";
  const std::size_t begin = at + kFolder.size();
  return script.substr(begin, script.size() - begin - std::string_view(".py").size());
}

void refuse_other_command(const Setting& command) {
  const std::string text = text_of(command.value);
  if (is_named_in(kPlanned, text)) return;
  refuse(command,
         phrase("OpenRLHF's {} (train_sft, train_dpo and train_ppo_ray are planned)", text));
}

void prepare_openrlhf(const std::string& command, PartsByKey& parts) {
  // Adapters where a rank is above 0, on all linear layers; four bits are NF4, quantised twice.
  const auto adapters = parts.find(ScenarioKey::method);
  if (adapters != parts.end()) {
    Json& object = adapters->second.object;
    const Json* rank = object.find("rank");
    const bool lora = rank != nullptr && rank->is_number() && rank->as_number() > 0.0;
    const Json* four_bits = object.find("four_bits");
    if (!lora && four_bits != nullptr && is_on(*four_bits)) {
      refuse(*adapters->second.last, "weights in four bits without adapters");
    }
    if (lora) object["rank"] = static_cast<std::int64_t>(rank->as_number());
    object["kind"] = lora ? "lora" : "full";
    if (object.find("targets") == nullptr) object["targets"] = Json::array({"all-linear"});
    object["quant"] = "nf4";
    object["double_quant"] = true;
  }
  // Epochs over the samples of one rollout are no epochs of the data.
  const auto samples = parts.find(ScenarioKey::dataset);
  if (command != kRewards || samples == parts.end()) return;
  Json kept = Json::object();
  for (const auto& [name, value] : samples->second.object.members()) {
    if (name != "epochs") kept[name] = value;
  }
  samples->second.object = kept;
}

void finish_openrlhf(const Setting& command, const PartsByKey& parts, Meaning& meaning) {
  OpenrlhfReader(command, parts, meaning).finish();
}

}  // namespace zeroplan::foreign
