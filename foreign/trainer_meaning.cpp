#include "foreign/trainer_meaning.hpp"

#include <filesystem>
#include <string_view>

#include "base/written_names.hpp"
#include "foreign/setting_table.hpp"

namespace zeroplan::foreign {
namespace {

constexpr std::string_view kKinds = "dpo|kto|grpo|ppo|gkd";

// The trainer that a setting names; empty where it names none.
std::string kind_of(const Setting& setting, Tool tool) {
  std::string text = text_of(setting.value);
  // A file, or the module that TRL's command starts: dpo.py, trl.scripts.dpo.
  constexpr std::string_view kModules = "trl.scripts.";
  if (tool == Tool::axolotl) {
    if (setting.name != "rl") return "";
    if (text == "ipo") text = "dpo";  // the same tensors, another loss of them
  } else if (tool == Tool::llama_factory) {
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

// Settings that other programs have, too: they name no trainer.
constexpr std::string_view kOfOthers = "max_new_tokens|teacher_model_name_or_path";

const SettingRow* row_of(std::string_view name) {
  const SettingRow* row = find_row(name, Tool::trainer);
  return row != nullptr && row->rule == Rule::trainer ? row : nullptr;
}

}  // namespace

// A named trainer counts; where none is named, arguments that one trainer of TRL alone has name it.
TrainerMeaning::TrainerMeaning(const Part& part) : tool_(part.tool) {
  bool silent = tool_ == Tool::trainer;
  for (const Setting& setting : part.settings) {
    if (kind_.empty()) kind_ = kind_of(setting, tool_);
    silent = silent && setting.name != "trl";
  }
  for (const Setting& setting : part.settings) {
    const SettingRow* row = row_of(setting.name);
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
  const SettingRow* row = row_of(setting.name);
  const bool theirs = setting.name.starts_with("pref_") == (tool_ == Tool::llama_factory);
  // No other trainer reads it.
  if (row == nullptr || !theirs || (!row->of.empty() && !is_named_in(row->of, kind_))) return false;
  // By what stands there it is seen who generates, and where.
  said_[setting.name] =
      row->words != nullptr ? setting.value : read_value(*row, setting.value).value();
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
    const SettingRow& row = *row_of(name);
    if (row.words == nullptr && !row.part.empty()) settings[row.part] = value;
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
