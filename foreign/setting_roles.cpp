#include "foreign/setting_roles.hpp"

#include <array>

#include "base/written_names.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {
namespace {

struct RoleRow {
  std::string_view names;  // with '|' between them
  Role role;
};

// Names as the tools' argument classes have them: transformers/training_args.py, trl/trainer/
// *_config.py and trl/scripts/utils.py, LLaMA-Factory src/llamafactory/hparams/*_args.py, axolotl
// utils/schemas/*.py, accelerate utils/dataclasses.py and commands/launch.py.
constexpr std::array kRoleRows = {
    RoleRow{"model_name_or_path|base_model|model_id|model_name|pretrained_model_name_or_path",
            Role::model},
    RoleRow{
        "cutoff_len|max_length|max_seq_length|max_seq_len|model_max_length|block_size|sequence_len",
        Role::sequence},
    RoleRow{"per_device_train_batch_size|micro_batch_size|per_gpu_train_batch_size",
            Role::micro_batch},
    RoleRow{"gradient_accumulation_steps|accelerate.gradient_accumulation_steps|deepspeed_config."
            "gradient_accumulation_steps",
            Role::accumulation},
    RoleRow{"bf16", Role::bf16},
    RoleRow{"fp16", Role::fp16},
    RoleRow{"mixed_precision|accelerate.mixed_precision", Role::mixed_precision},
    RoleRow{"optim|optimizer", Role::optimizer},
    RoleRow{"attn_implementation|flash_attn", Role::attention},
    RoleRow{"flash_attention|use_flash_attn|use_flash_attention_2", Role::flash},
    RoleRow{"sdp_attention", Role::sdpa},
    RoleRow{"eager_attention", Role::eager},
    RoleRow{"gradient_checkpointing|use_gradient_checkpointing|activation_checkpointing",
            Role::checkpointing},
    RoleRow{"disable_gradient_checkpointing", Role::no_checkpointing},
    RoleRow{"gradient_checkpointing_kwargs|activation_checkpointing_kwargs",
            Role::checkpointing_arguments},
    RoleRow{"activation_offloading", Role::activation_offloading},
    RoleRow{"zero3_init_flag|deepspeed_config.zero3_init_flag|accelerate.zero3_init_flag|"
            "fsdp_cpu_ram_efficient_loading|accelerate.fsdp_cpu_ram_efficient_loading",
            Role::loading},
    RoleRow{"accelerator_config", Role::accelerator_arguments},
    RoleRow{"use_reentrant_gc|use_reentrant", Role::reentrant},
    RoleRow{"deepspeed|deepspeed_config|accelerate.deepspeed_config_file", Role::ds_config},
    RoleRow{"fsdp|use_fsdp", Role::fsdp},
    RoleRow{"fsdp_config", Role::fsdp_arguments},
    RoleRow{"use_liger_kernel|enable_liger_kernel|use_liger|liger_fused_linear_cross_entropy",
            Role::fused_loss},
    RoleRow{"finetuning_type|adapter", Role::adapter},
    RoleRow{"use_peft|use_lora|lora", Role::use_adapter},
    RoleRow{"lora_rank|lora_r", Role::rank},
    RoleRow{"lora_target|lora_target_modules|target_modules", Role::targets},
    RoleRow{"lora_target_linear", Role::all_targets},
    RoleRow{"load_in_4bit|use_4bit", Role::four_bits},
    RoleRow{"quantization_bit|bits|quant|quantization", Role::bits},
    RoleRow{"lora_dropout", Role::dropout},
    RoleRow{"quantization_type|bnb_4bit_quant_type", Role::four_bit_code},
    RoleRow{"double_quantization|use_bnb_nested_quant|bnb_4bit_use_double_quant",
            Role::double_quant},
    RoleRow{"bnb_config_kwargs", Role::bnb_arguments},
    RoleRow{"fsdp_version", Role::fsdp_version},
    RoleRow{"tiled_mlp", Role::tiled_mlp},
    RoleRow{"distributed_type", Role::ddp},
    RoleRow{"dtype|torch_dtype", Role::dtype},
    RoleRow{"pure_bf16", Role::pure_bf16},
    RoleRow{"device_map", Role::device_map},
    RoleRow{"torch_compile|compile", Role::compile},
    RoleRow{"save_strategy", Role::save_strategy},
    RoleRow{"save_steps", Role::save_steps},
    RoleRow{"eval_strategy|evaluation_strategy", Role::eval_strategy},
    RoleRow{"eval_steps", Role::eval_steps},
    RoleRow{"saves_per_epoch", Role::saves_per_epoch},
    RoleRow{"evals_per_epoch", Role::evals_per_epoch},
    RoleRow{"do_eval", Role::do_eval},
    RoleRow{"val_size|val_set_size|eval_dataset|val_dataset|test_datasets|validation_file|"
            "eval_data_path",
            Role::held_out},
    RoleRow{"per_device_eval_batch_size|eval_batch_size|per_gpu_eval_batch_size", Role::eval_batch},
    RoleRow{"eval_accumulation_steps", Role::eval_accumulation},
    RoleRow{"logging_strategy", Role::logging_strategy},
    RoleRow{"logging_steps", Role::logging_steps},
    RoleRow{"dataloader_num_workers", Role::dataloader_workers},
    RoleRow{"padding|pad_to_max_length|pad_to_sequence_len", Role::padding},
    RoleRow{"packing|neat_packing|sample_packing", Role::packing},
    RoleRow{"num_train_epochs|num_epochs", Role::epochs},
    RoleRow{"freeze_vision_tower|freeze_vit|freeze_multi_modal_projector|freeze_aligner|"
            "freeze_language_model|freeze_llm",
            Role::vision},
    RoleRow{"image_max_pixels|max_pixels", Role::image_pixels},
    RoleRow{"quant_method|quantization_method", Role::quant_method},
};
// Names that mean it with one tool alone.
struct OwnRow {
  Tool tool;
  std::string_view names;
  Role role;
};
constexpr std::array kOwnRows = {
    OwnRow{Tool::swift, "model|model_id_or_path", Role::model},
    OwnRow{Tool::swift, "train_type|sft_type|tuner_type", Role::adapter},
    OwnRow{Tool::swift, "attn_impl", Role::attention},
    OwnRow{Tool::swift, "quant_bits", Role::bits},
    OwnRow{Tool::swift, "max_epochs", Role::epochs},
    OwnRow{Tool::swift, "split_dataset_ratio", Role::held_out},
};

}  // namespace

std::optional<Role> role_of(std::string_view name, Tool tool) {
  for (const OwnRow& row : kOwnRows) {
    if (row.tool == tool && is_named_in(row.names, name)) return row.role;
  }
  for (const RoleRow& row : kRoleRows) {
    if (is_named_in(row.names, name)) return row.role;
  }
  return std::nullopt;
}

bool is_on(const Json& value) {
  if (value.is_boolean()) return value.as_boolean();
  const std::string text = folded(text_of(value), "");
  return text == "true" || text == "yes" || text == "1" || text == "auto" || text == "full" ||
         text == "on";
}

bool is_switched_off(const Json& value) {
  if (value.is_boolean()) return !value.as_boolean();
  return is_named_in("false|no|none|0|off", folded(text_of(value), ""));
}

bool says_nothing(const Json& value) {
  return value.is_null() ||
         (value.is_string() && (value.as_string().empty() || value.as_string() == "null"));
}

std::vector<std::string> names_in(const Json& value) {
  std::vector<std::string> names;
  for (const Json& item : value.items()) names.push_back(text_of(item));
  if (!value.is_string()) return names;
  std::string name;
  for (const char c : value.as_string() + ",") {
    if (c != ',' && c != ' ') {
      name += c;
    } else if (!name.empty()) {
      names.push_back(name);
      name.clear();
    }
  }
  return names;
}

std::string attention_of(const std::string& name) {
  const std::string word = folded(name, "-_");
  if (word == "true") return "flash";
  if (word == "disabled" || word == "false") return "eager";
  return word == "auto" ? "" : name;
}

}  // namespace zeroplan::foreign
