#include "foreign/unplanned.hpp"

#include "base/diagnostic.hpp"
#include "base/written_names.hpp"
#include "foreign/setting_table.hpp"

namespace zeroplan::foreign {
namespace {

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.as_boolean();
  if (value.is_number()) return value.as_number() == 0.0 || value.as_number() == 1.0;
  const std::string text = folded(text_of(value), "");
  return text.empty() || text == "false" || text == "no" || text == "none" || text == "null" ||
         text == "0" || text == "1" || value.dump() == "[]";
}

}  // namespace

void refuse(const Setting& setting, const Phrase& what) {
  throw InputError({setting.file,
                    "line " + std::to_string(setting.line) + ": " + setting.name,
                    "a training that is planned",
                    what,
                    "take it out to plan the rest, or rehearse the program itself: zeroplan "
                    "rehearse --gpu NAME -- COMMAND"});
}

void refuse_unplanned(const Setting& setting, Tool tool) {
  const std::string text = text_of(setting.value);
  const SettingRow* row = find_row(setting.name, tool);
  const bool asks = row != nullptr && !row->refused.empty() && !is_off(setting.value);
  if (asks) refuse(setting, std::string(row->refused));
  const bool swift_type =
      tool == Tool::swift && row != nullptr && row->is == "method.kind" && !row->weak;
  if (swift_type && text != "full" && text != "lora") refuse(setting, setting.name + " " + text);
  const bool rlhf = tool == Tool::swift && setting.name == "rlhf_type";
  if (rlhf && text != "dpo" && text != "kto" && text != "grpo") {
    refuse(setting, setting.name + " " + text);
  }
  if (setting.name == "plugins" && text.find("cut_cross_entropy") != std::string::npos) {
    refuse(setting, "Cut Cross Entropy");
  }
  const bool stage = setting.name == "stage" && tool == Tool::llama_factory;
  const bool trained_stage = text == "sft" || text == "pt" || text == "dpo" || text == "kto";
  if (stage && !trained_stage) refuse(setting, phrase("the stage {}", in_quotes(text)));
  if (setting.name == "finetuning_type" && text != "full" && text != "lora") {
    refuse(setting, "finetuning_type " + in_quotes(text));
  }
  const bool named = tool == Tool::axolotl && setting.name == "rl" && !is_off(setting.value);
  if (named && !is_named_in("dpo|ipo|kto|grpo", text)) {
    refuse(setting, phrase("rl: {} (dpo, ipo, kto and grpo are planned)", text));
  }
  const bool trained = text == "sft" || text == "dpo" || text == "kto" || text == "grpo";
  if (setting.name == "trl" && tool != Tool::axolotl && !trained) refuse(setting, "trl " + text);
  const bool eight =
      setting.name == "quantization_bit" || setting.name == "bits" || setting.name == "quant_bits";
  if (eight && !is_off(setting.value) && count_of(setting.value) != 4 &&
      count_of(setting.value) < 16) {
    refuse(setting, phrase("weights of {} bits", text));
  }
}

bool changes_nothing(std::string_view name, Tool tool) {
  if (has_own_arguments(tool)) {
    const SettingRow* own = find_row(name, tool);
    return own != nullptr && !own->key;
  }
  // A member of a section; FSDP's have a prefix in some tools' files.
  if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos) {
    name.remove_prefix(dot + 1);
  }
  if (name.starts_with("fsdp_")) name.remove_prefix(5);
  // "wandb_..." of all kinds; parts of accelerate's command line.
  if (name.starts_with("wandb_") || name.starts_with("swanlab_") || name.starts_with("hub_"))
    return true;
  // What is not planned, switched off; arguments of trainers that do not run; what a run needs
  // beside its plan.
  const SettingRow* row = find_row(name, Tool::trainer);
  const bool says_nothing_here =
      row != nullptr && (row->rule == Rule::trainer || (!row->key && row->rule == Rule::none));
  return says_nothing_here || is_unused(name);
}

}  // namespace zeroplan::foreign
