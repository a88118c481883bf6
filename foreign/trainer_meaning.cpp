#include "foreign/trainer_meaning.hpp"

#include <array>
#include <filesystem>
#include <string_view>

#include "base/written_names.hpp"
#include "foreign/setting_roles.hpp"

namespace zeroplan::foreign {
namespace {

constexpr std::string_view kKinds = "dpo|kto|grpo|ppo|gkd";

// The trainer that a setting names; empty where it names none.
std::string kind_of(const Setting& setting, Tool tool) {
  std::string text = text_of(setting.value);
  // A file, or the module that TRL's command starts: dpo.py, trl.scripts.dpo.
  constexpr std::string_view kModules = "trl.scripts.";
  if (tool == Tool::llama_factory) {
    if (setting.name != "stage") return "";
  } else if (setting.name == "script") {
    text = text.starts_with(kModules) ? text.substr(kModules.size())
                                      : std::filesystem::path(text).stem().string();
    if (text == "ppo_tldr") text = "ppo";
  } else if (setting.name != (tool == Tool::swift ? "rlhf_type" : "trl")) {
    return "";
  }
  return is_named_in(kKinds, text) ? text : "";
}

enum class Kind { text, number, count, on };
struct TrainerRow {
  std::string_view theirs;
  std::string_view ours;  // a member of the scenario's trainer; empty: what others are made of
  Kind kind;
  std::string_view of;  // the trainers that have the argument; empty: all
};
// trl/trainer/dpo_config.py, kto_config.py, grpo_config.py of 1.16.0; ppo_config.py of 1.12.0;
// gkd_config.py of 1.16.0;
// llamafactory/hparams/finetuning_args.py of 0.9.5.
constexpr std::array kTrainerRows = {
    TrainerRow{"beta", "beta", Kind::number, ""},
    TrainerRow{"pref_beta", "beta", Kind::number, ""},
    TrainerRow{"pref_loss", "", Kind::text, ""},
    TrainerRow{"precompute_ref_log_probs", "precompute_reference", Kind::on, "dpo|kto"},
    TrainerRow{"max_prompt_length", "", Kind::count, "grpo"},
    TrainerRow{"max_completion_length", "completion_length", Kind::count, "grpo"},
    TrainerRow{"use_vllm", "", Kind::on, "grpo"},
    TrainerRow{"vllm_mode", "", Kind::text, "grpo"},
    TrainerRow{"num_generations", "completions", Kind::count, "grpo"},
    TrainerRow{"steps_per_generation", "generation_batches", Kind::count, "grpo"},
    TrainerRow{"ds3_gather_for_generation", "gathers_model", Kind::on, "grpo|ppo"},
    TrainerRow{"vllm_gpu_memory_utilization", "memory_share", Kind::number, "grpo"},
    TrainerRow{"vllm_enable_sleep_mode", "sleeps", Kind::on, "grpo"},
    TrainerRow{"vllm_tensor_parallel_size", "generation_tensor_parallel", Kind::count, "grpo"},
    TrainerRow{"kl_coef", "beta", Kind::number, "ppo"},
    TrainerRow{"response_length", "completion_length", Kind::count, "ppo"},
    TrainerRow{"local_rollout_forward_batch_size", "rollout_rows", Kind::count, "ppo"},
    TrainerRow{"num_ppo_epochs", "epochs", Kind::count, "ppo"},
    TrainerRow{"num_mini_batches", "mini_batches", Kind::count, "ppo"},
    TrainerRow{"reward_model_path", "", Kind::text, "ppo"},
    TrainerRow{"sft_model_path", "", Kind::text, "ppo"},
    TrainerRow{"lmbda", "lmbda", Kind::number, "gkd"},
    TrainerRow{"seq_kd", "seq_kd", Kind::on, "gkd"},
    TrainerRow{"max_new_tokens", "completion_length", Kind::count, "gkd"},
    TrainerRow{"teacher_model_name_or_path", "", Kind::text, "gkd"},
};

// Settings that other programs have, too: they name no trainer.
constexpr std::string_view kOfOthers = "max_new_tokens|teacher_model_name_or_path";

const TrainerRow* row_of(std::string_view name) {
  for (const TrainerRow& row : kTrainerRows) {
    if (row.theirs == name) return &row;
  }
  return nullptr;
}

Json number_of(const Json& value) {
  if (value.is_number()) return value;
  try {
    return Json(std::stod(text_of(value)));
  } catch (const std::exception&) {
    return value;  // refused where the scenario is resolved
  }
}

Json value_of(const TrainerRow& row, const Json& value) {
  if (row.kind == Kind::on) return is_on(value);
  if (row.kind == Kind::count) return count_of(value);
  return row.kind == Kind::number ? number_of(value) : value;
}

}  // namespace

bool is_of_trainers(std::string_view name) { return row_of(name) != nullptr; }

// A named trainer counts; where none is named, arguments that one trainer of TRL alone has name it.
TrainerMeaning::TrainerMeaning(const Part& part) : tool_(part.tool) {
  bool silent = tool_ == Tool::trainer;
  for (const Setting& setting : part.settings) {
    if (kind_.empty()) kind_ = kind_of(setting, tool_);
    silent = silent && setting.name != "trl";
  }
  for (const Setting& setting : part.settings) {
    const TrainerRow* row = row_of(setting.name);
    const bool names = row != nullptr && !row->of.empty() && !says_nothing(setting.value) &&
                       !is_named_in(kOfOthers, setting.name);
    if (!kind_.empty() || !silent || !names) continue;
    kind_ = row->of.substr(0, row->of.find('|'));
    named_by_ = setting.name;
  }
}

bool TrainerMeaning::read(const Setting& setting) {
  if (kind_.empty()) return false;
  if (!kind_of(setting, tool_).empty()) return true;
  const TrainerRow* row = row_of(setting.name);
  const bool theirs = setting.name.starts_with("pref_") == (tool_ == Tool::llama_factory);
  // No other trainer reads it.
  if (row == nullptr || !theirs || (!row->of.empty() && !is_named_in(row->of, kind_))) return false;
  said_[setting.name] = value_of(*row, setting.value);
  return true;
}

Json TrainerMeaning::said(std::string_view name) const {
  const Json* found = said_.find(name);
  return found == nullptr ? Json() : *found;
}

Json TrainerMeaning::trainer() const {
  if (kind_.empty()) return {};
  Json settings = Json::object();
  if (tool_ == Tool::llama_factory) settings["code"] = "llama-factory";
  for (const auto& [name, value] : said_.members()) {
    const TrainerRow& row = *row_of(name);
    if (!row.ours.empty()) settings[std::string(row.ours)] = value;
  }
  // llamafactory/hparams/finetuning_args.py: preferences without a reference.
  const std::string loss = text_of(said("pref_loss"));
  if (kind_ == "dpo" && (loss == "orpo" || loss == "simpo")) {
    settings["precompute_reference"] = true;
  }
  if (is_on(said("use_vllm"))) {
    settings["generation"] = text_of(said("vllm_mode")) == "server" ? "server" : "colocated";
  }
  return Json::object({{kind_, settings}});
}

// ppo.py loads the reward model and the value model from one place.
Json TrainerMeaning::models() const {
  const Json reward = said("reward_model_path");
  if (reward.is_null()) return {};
  Json models = Json::array();
  models.push_back(Json::object({{"role", "reward"}, {"model", reward}}));
  return models;
}

// grpo_config.py: prompts of 512 tokens and completions of 256 where nobody says.
Json TrainerMeaning::sequence_length() const {
  const Json prompt = said("max_prompt_length"), completion = said("max_completion_length");
  if (prompt.is_null() && completion.is_null()) return {};
  constexpr std::int64_t kPrompt = 512, kCompletion = 256;
  return Json((prompt.is_null() ? kPrompt : prompt.as_integer()) +
              (completion.is_null() ? kCompletion : completion.as_integer()));
}

}  // namespace zeroplan::foreign
