#include "cli/from/trainer_meaning.hpp"

#include <array>
#include <filesystem>
#include <string_view>

#include "base/written_names.hpp"
#include "cli/from/setting_roles.hpp"

namespace zeroplan::from {
namespace {

constexpr std::array<std::string_view, 4> kKinds = {"dpo", "kto", "grpo", "ppo"};

std::string kind_of(const Setting& setting) {
  std::string text = text_of(setting.value);
  // A file, or the module that TRL's command starts: dpo.py, trl.scripts.dpo.
  constexpr std::string_view kModules = "trl.scripts.";
  if (text.starts_with(kModules)) {
    text = text.substr(kModules.size());
  } else if (setting.name == "script") {
    text = std::filesystem::path(text).stem().string();
    if (text == "ppo_tldr") text = "ppo";
  }
  for (const std::string_view kind : kKinds) {
    if (text == kind) return text;
  }
  return "";
}

enum class Kind { text, number, count, on };
struct TrainerRow {
  std::string_view theirs, ours;
  Kind kind;
  std::string_view of;  // the trainers that have the argument; empty: all
};
// trl/trainer/dpo_config.py, kto_config.py, grpo_config.py of 1.16.0; ppo_config.py of 1.12.0.
constexpr std::array kTrainerRows = {
    TrainerRow{"precompute_ref_log_probs", "precompute_reference", Kind::on, ""},
    TrainerRow{"beta", "beta", Kind::number, ""},
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
};

bool is_of(const TrainerRow& row, std::string_view kind) {
  if (row.of.empty()) return true;
  return !first_name(row.of, [&](std::string_view one) { return one == kind; }).empty();
}

Json number_of(const Json& value) {
  if (value.is_number()) return value;
  try {
    return Json(std::stod(text_of(value)));
  } catch (const std::exception&) {
    return value;  // refused where the scenario is resolved
  }
}

// llamafactory/hparams/finetuning_args.py: preferences without a reference.
bool is_without_reference(const std::string& loss) { return loss == "orpo" || loss == "simpo"; }

}  // namespace

bool TrainerMeaning::read_llama_factory(const Setting& setting) {
  if (setting.name == "stage") {
    const std::string stage = text_of(setting.value);
    if (stage != "dpo" && stage != "kto") return false;
    kind_ = stage;
    settings_["code"] = "llama-factory";
    return true;
  }
  if (setting.name == "pref_loss") {
    without_reference_ = is_without_reference(text_of(setting.value));
    return true;
  }
  if (setting.name != "pref_beta") return false;
  settings_["beta"] = number_of(setting.value);
  return true;
}

bool TrainerMeaning::read(const Setting& setting) {
  if (tool_ == Tool::llama_factory) return read_llama_factory(setting);
  if (setting.name == "trl" || setting.name == "script" ||
      (tool_ == Tool::swift && setting.name == "rlhf_type")) {
    const std::string kind = kind_of(setting);
    if (!kind.empty()) kind_ = kind;
    return !kind.empty();
  }
  if (setting.name == "max_prompt_length") prompt_ = count_of(setting.value);
  if (setting.name == "max_completion_length") completion_ = count_of(setting.value);
  if (setting.name == "use_vllm") vllm_ = is_on(setting.value);
  if (setting.name == "vllm_mode") vllm_mode_ = text_of(setting.value);
  if (kind_ == "ppo" && setting.name == "reward_model_path") reward_ = setting.value;
  if (kind_ == "ppo" && setting.name == "sft_model_path") policy_ = setting.value;
  for (const TrainerRow& row : kTrainerRows) {
    if (setting.name != row.theirs) continue;
    if (!is_of(row, kind_)) return false;  // no other trainer reads it
    const std::string ours(row.ours);
    if (row.kind == Kind::on) settings_[ours] = is_on(setting.value);
    if (row.kind == Kind::count) settings_[ours] = count_of(setting.value);
    if (row.kind == Kind::number) settings_[ours] = number_of(setting.value);
    return true;
  }
  return setting.name == "max_prompt_length" || setting.name == "max_completion_length" ||
         setting.name == "use_vllm" || setting.name == "vllm_mode" ||
         (kind_ == "ppo" &&
          (setting.name == "reward_model_path" || setting.name == "sft_model_path"));
}

Json TrainerMeaning::trainer() const {
  if (kind_.empty()) return {};
  Json settings = settings_;
  if (kind_ == "dpo" && without_reference_) settings["precompute_reference"] = true;
  if (kind_ == "grpo") {
    settings.erase("precompute_reference");
    if (!completion_.is_null()) settings["completion_length"] = completion_;
    if (vllm_) settings["generation"] = vllm_mode_ == "server" ? "server" : "colocated";
  }
  if (kind_ == "ppo") settings.erase("precompute_reference");
  return Json::object({{kind_, settings}});
}

// ppo.py loads the reward model and the value model from one place.
Json TrainerMeaning::models() const {
  if (reward_.is_null()) return {};
  Json models = Json::array();
  models.push_back(Json::object({{"role", "reward"}, {"model", reward_}}));
  return models;
}

// grpo_config.py: prompts of 512 tokens and completions of 256 where nobody says.
Json TrainerMeaning::sequence_length() const {
  if (kind_ != "grpo" || (prompt_.is_null() && completion_.is_null())) return {};
  constexpr std::int64_t kPrompt = 512, kCompletion = 256;
  return Json((prompt_.is_null() ? kPrompt : prompt_.as_integer()) +
              (completion_.is_null() ? kCompletion : completion_.as_integer()));
}

}  // namespace zeroplan::from
