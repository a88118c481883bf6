#include "foreign/unplanned.hpp"

#include <algorithm>
#include <array>

#include "base/diagnostic.hpp"
#include "base/written_names.hpp"
#include "foreign/setting_roles.hpp"
#include "foreign/trainer_meaning.hpp"

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

struct Unplanned {
  std::string_view names;
  std::string_view what;
};
constexpr std::array kUnplanned = {
    Unplanned{"use_unsloth|use_unsloth_gc|unsloth", "Unsloth's own kernels"},
    Unplanned{"use_galore|use_apollo|use_badam|use_llama_pro|use_mod|mixture_of_depths",
              "an optimizer or a model of LLaMA-Factory's own"},
    Unplanned{"use_dora|peft_use_dora|lora_use_dora", "DoRA"},
    Unplanned{"load_in_8bit|use_8bit", "8-bit weights"},
    Unplanned{"fp8", "fp8"},
    Unplanned{"freeze_trainable_layers|unfrozen_parameters", "a model that is frozen in part"},
    Unplanned{"context_parallel_size|cp_size", "context parallelism"},
    Unplanned{"ref_model|ref_model_adapters|ref_model_quantization_bit",
              "a reference of its own (--beside reference=MODEL says one)"},
    Unplanned{"tensor_parallel_size|tp_size", "tensor ranks under the Trainer"},
    Unplanned{"expert_parallel_size|ep_size", "expert parallelism"},
    Unplanned{"rl|relora_steps", "another kind of training than fine-tuning"},
    Unplanned{"multipack_real_batches|batch_flattening", "batches that are flattened"},
    Unplanned{"cut_cross_entropy", "Cut Cross Entropy"},
    Unplanned{"auto_find_batch_size", "a batch size that is found while it runs"},
    Unplanned{"lora_modules_to_save|modules_to_save|additional_target",
              "layers that are trained whole beside adapters"},
    Unplanned{"freeze_parameters|freeze_parameters_ratio|freeze_parameters_regex",
              "a model that is frozen in part"},
    Unplanned{"lisa_activated_layers", "layers that are trained in turn"},
    Unplanned{"deepspeed_autotp_size|autotp_size", "DeepSpeed's AutoTP"},
    Unplanned{"rloo_k|normalize_advantages|reward_clip_range", "TRL's RLOOTrainer"},
};

}  // namespace

void refuse(const Setting& setting, const Phrase& what) {
  throw InputError({setting.file,
                    "line " + std::to_string(setting.line) + ": " + setting.name,
                    "a training that is planned",
                    what,
                    "take it out to plan the rest, or rehearse the program itself: zeroplan "
                    "rehearse --gpu NAME -- COMMAND"});
}

namespace {

// Known names without influence, of all tools together.
constexpr std::string_view kNothing =
    "output_dir|overwrite_output_dir|overwrite_cache|do_train|do_predict|save_total_limit|"
    "save_only_model|save_safetensors|logging_dir|logging_first_step|report_to|run_name|"
    "learning_rate|lr|lr_scheduler|lr_scheduler_type|warmup_ratio|warmup_steps|weight_decay|"
    "adam_beta1|adam_beta2|adam_epsilon|max_grad_norm|max_steps|max_samples|seed|data_seed|"
    "dataset|dataset_dir|datasets|reward_funcs|dataset_name|dataset_config|dataset_path|"
    "dataset_prepared_path|dataset_num_proc|dataset_text_field|dataset_train_split|"
    "dataset_test_split|data_path|train_file|template|chat_template|chat_template_path|"
    "prompt_template|special_tokens|tokens|tokenizer_type|tokenizer_name|model_type|"
    "trust_remote_code|use_fast_tokenizer|cache_dir|hub_model_id|hub_token|push_to_hub|"
    "preprocessing_num_workers|dataloader_pin_memory|dataloader_prefetch_factor|"
    "dataloader_drop_last|remove_unused_columns|label_names|group_by_length|train_on_inputs|"
    "shuffle_merged_datasets|eval_sample_packing|mask_prompt|train_on_prompt|stage|plot_loss|"
    "ddp_timeout|ddp_find_unused_parameters|ddp_backend|local_rank|resume_from_checkpoint|"
    "auto_resume_from_checkpoints|load_best_model_at_end|metric_for_best_model|"
    "early_stopping_patience|lora_alpha|lora_bias|lora_task_type|use_rslora|use_rs_lora|"
    "loraplus_lr_ratio|lora_fan_in_fan_out|lora_model_dir|bnb_4bit_quant_storage|"
    "bnb_4bit_compute_dtype|liger_rope|liger_rms_norm|liger_glu_activation|liger_swiglu|"
    "predict_with_generate|wandb_project|wandb_entity|wandb_watch|wandb_name|wandb_log_model|"
    "wandb_mode|swanlab_project|debug|strict|tf32|logits_to_keep|do_sample|temperature|top_p|"
    "disable_tqdm|log_level|greater_is_better|hub_strategy|include_tokens_per_second|"
    "include_num_input_tokens_seen|torch_empty_cache_steps|compute_environment|downcast_bf16|"
    "dynamo_config|enable_cpu_affinity|machine_rank|main_training_function|main_process_ip|"
    "main_process_port|num_machines|num_processes|rdzv_backend|same_network|tpu_env|"
    "tpu_use_cluster|tpu_use_sudo|use_cpu|gpu_ids|megatron_lm_config|deepspeed_hostfile|"
    "mlflow_experiment_name|hf_use_auth_token|base_model_config|model_revision|tokenizer_config|"
    "is_llama_derived_model|is_mistral_derived_model|is_qwen_derived_model|low_cpu_mem_usage|"
    "ignore_data_skip|eval_table_size|eval_max_new_tokens|lazy_preprocess|model_max_len|version|"
    "conv_mode|messages_column|streaming|dataset_num_workers|assistant_only_loss|"
    "completion_only_loss|plugins|loss_watchdog_threshold|loss_watchdog_patience|"
    "skip_prepare_dataset|processor_type|train_dataset|eot_tokens|tokenizer_use_mistral_common|"
    "max_new_tokens|pretraining_dataset|dataset_mixture|loss_type|lr_scheduler_kwargs|"
    "lr_quadratic_warmup|cosine_min_lr_ratio|cosine_constant_lr_ratio|revision_of_model|"
    "eos_token|dataset_kwargs|tokenizer_legacy|tokenizer_use_fast|total_episodes|"
    "missing_eos_penalty|stop_token|stop_token_id|num_sample_generations|kl_estimator|cliprange|"
    "cliprange_value|vf_coef|gamma|lam|whiten_rewards|exp_name|launcher|master_port|master_addr|"
    "node_rank|rdzv_id|rdzv_endpoint|deepspeed_multinode_launcher|"
    "zero3_save_16bit_model|auto_wrap_policy|transformer_layer_cls_to_wrap|min_num_params|"
    "state_dict_type|backward_prefetch|backward_prefetch_policy|forward_prefetch|"
    "limit_all_gathers|use_orig_params|sync_module_states|"
    "determinism_check|preserve_rng_state|padding_free|split_dataset_ratio|load_from_cache_file|"
    "dataset_shuffle|data_collator|system|model_author|add_version|check_model|use_hf|"
    "truncation_strategy|padding_side|lora_dtype|init_weights|init_lora_weights|lorap_lr_ratio|"
    "agent_template|external_plugins|custom_register_path|tuner_backend|task_type|"
    "vit_lr|aligner_lr|vit_gradient_checkpointing|acc_strategy|callbacks|safe_serialization|"
    "max_shard_size|streaming_multipack_buffer_size|infer_backend|xformers_attention|"
    "flash_attn_rms_norm|flash_attn_cross_entropy";

}  // namespace

void refuse_unplanned(const Setting& setting, Tool tool) {
  const std::string text = text_of(setting.value);
  for (const Unplanned& row : kUnplanned) {
    const bool named = is_named_in(row.names, setting.name);
    if (named && !is_off(setting.value)) refuse(setting, std::string(row.what));
  }
  const bool swift_type = tool == Tool::swift && role_of(setting.name, tool) == Role::adapter;
  if (swift_type && text != "full" && text != "lora") refuse(setting, setting.name + " " + text);
  const bool rlhf = tool == Tool::swift && setting.name == "rlhf_type";
  if (rlhf && text != "dpo" && text != "kto" && text != "grpo") {
    refuse(setting, setting.name + " " + text);
  }
  const bool stage = setting.name == "stage" && tool == Tool::llama_factory;
  const bool trained_stage = text == "sft" || text == "pt" || text == "dpo" || text == "kto";
  if (stage && !trained_stage) refuse(setting, phrase("the stage {}", in_quotes(text)));
  if (setting.name == "finetuning_type" && text != "full" && text != "lora") {
    refuse(setting, "finetuning_type " + in_quotes(text));
  }
  const bool trained = text == "sft" || text == "dpo" || text == "kto" || text == "grpo";
  if (setting.name == "trl" && !trained) refuse(setting, "trl " + text);
  const bool eight =
      setting.name == "quantization_bit" || setting.name == "bits" || setting.name == "quant_bits";
  if (eight && !is_off(setting.value) && count_of(setting.value) != 4 &&
      count_of(setting.value) < 16) {
    refuse(setting, phrase("weights of {} bits", text));
  }
}

bool changes_nothing(std::string_view name) {
  // A member of a section; FSDP's have a prefix in some tools' files.
  if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos) {
    name.remove_prefix(dot + 1);
  }
  if (name.starts_with("fsdp_")) name.remove_prefix(5);
  // "wandb_..." of all kinds; parts of accelerate's command line.
  if (name.starts_with("wandb_") || name.starts_with("swanlab_") || name.starts_with("hub_"))
    return true;
  // What is not planned, switched off.
  for (const Unplanned& row : kUnplanned) {
    if (is_named_in(row.names, name)) return true;
  }
  // Arguments of trainers that do not run.
  return is_of_trainers(name) || is_named_in(kNothing, name);
}

}  // namespace zeroplan::foreign
