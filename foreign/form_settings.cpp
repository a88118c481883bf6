#include "foreign/form_settings.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "model/plan/trainer.hpp"
#include "model/quantization.hpp"

namespace zeroplan::foreign {
namespace {

bool has_adapters(const Plan& plan) { return plan.workload.method != Method::full; }

bool checkpoints(const Plan& plan) {
  return plan.workload.activation_checkpointing != ActivationCheckpointing::none;
}

bool packs(const Plan& plan) {
  return plan.workload.dataset && plan.workload.dataset->padding == Padding::packed;
}

// What a run needs and no plan has.
void add_own(FormSetting setting, FormSettings& settings) {
  setting.planned = false;
  settings.push_back(std::move(setting));
}

// What the weights are loaded in: DeepSpeed casts them, the others keep what they get.
DType loaded_dtype(const Plan& plan) {
  if (plan.workload.engine == TrainingEngine::fsdp) return plan.fsdp.storage_dtype;
  if (plan.workload.engine == TrainingEngine::ddp) return plan.ddp.weight_dtype;
  return plan.engine.model_dtype;
}

std::string_view torch_name(DType dtype) {
  return dtype == DType::bf16 ? "bfloat16" : dtype == DType::fp16 ? "float16" : "float32";
}

Json names_of(const std::vector<std::string>& names) {
  Json list = Json::array();
  for (const std::string& name : names) list.push_back(name);
  return list;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

// "full_shard auto_wrap": one word for the sharding, as TrainingArguments.fsdp has it.
std::string sharding_word(const FsdpConfig& fsdp) {
  const bool hybrid = fsdp.shard_ranks > 1 && fsdp.shard_ranks < fsdp.ranks;
  if (fsdp.sharding == Sharding::no_shard) return "no_shard";
  if (hybrid) return fsdp.sharding == Sharding::full ? "hybrid_shard" : "hybrid_shard_zero2";
  return fsdp.sharding == Sharding::full ? "full_shard" : "shard_grad_op";
}

// TrainingArguments.fsdp_config; prefix "fsdp_" in accelerate's file and in older releases.
Json fsdp_section(const Plan& plan) {
  const FsdpConfig& fsdp = plan.fsdp;
  Json section = Json::object({{"version", fsdp.version}});
  if (fsdp.version == 2) {
    section["reshard_after_forward"] = fsdp.sharding == Sharding::full;
    section["cpu_offload"] = fsdp.offload;
    return section;
  }
  section["backward_prefetch"] = "backward_pre";
  section["forward_prefetch"] = false;
  section["limit_all_gathers"] = true;
  section["use_orig_params"] = uses_original_parameters(plan);
  return section;
}

// TrainingArguments.accelerator_config.
void add_sync(const Plan& plan, FormSettings& settings) {
  if (!plan.workload.sync_each_batch || plan.workload.frontend != Frontend::hf_trainer) return;
  const Json accumulation = Json::object({{"sync_each_batch", true}});
  settings.push_back(
      {"accelerator_config", Json::object({{"gradient_accumulation_kwargs", accumulation}})});
}

// ds_config.json or FSDP, as every tool that hands them to the Trainer takes them; DDP is what runs
// where nothing is said.
void add_engine(const Plan& plan, const FormPlace& place, FormSettings& settings) {
  if (plan.workload.engine == TrainingEngine::deepspeed) {
    settings.push_back({"deepspeed", place.ds_config});
  } else if (plan.workload.engine == TrainingEngine::fsdp) {
    const FsdpConfig& fsdp = plan.fsdp;
    settings.push_back(
        {"fsdp", sharding_word(fsdp) + (fsdp.offload ? " offload" : "") + " auto_wrap"});
    settings.push_back({"fsdp_config", fsdp_section(plan)});
    add_sync(plan, settings);
  }
}

void add_batch(const Plan& plan, FormSettings& settings) {
  settings.push_back({"per_device_train_batch_size", plan.workload.micro_batch_size});
  settings.push_back({"gradient_accumulation_steps", plan.workload.gradient_accumulation_steps});
}

// TRL's default is bf16, so both are said.
void add_precision(const Plan& plan, FormSettings& settings) {
  settings.push_back({"bf16", plan.workload.precision == Precision::bf16});
  settings.push_back({"fp16", plan.workload.precision == Precision::fp16});
}

void add_optimizer(const Plan& plan, const char* name, FormSettings& settings) {
  const std::string optimizer = optimizer_argument(plan);
  if (!optimizer.empty()) settings.push_back({name, optimizer});
}

void add_checkpointing(const Plan& plan, FormSettings& settings) {
  settings.push_back({"gradient_checkpointing", checkpoints(plan)});
  if (!checkpoints(plan)) return;
  settings.push_back({"gradient_checkpointing_kwargs",
                      Json::object({{"use_reentrant", plan.workload.checkpoint_reentrant}})});
}

// save_strategy with save_steps, and so on: a count that is said, else `unsaid`.
void add_every(const char* strategy,
               const char* steps,
               const std::optional<Every>& every,
               const FormSetting& unsaid,
               FormSettings& settings) {
  if (!every) {
    add_own(unsaid, settings);
  } else if (every->unit == Every::Unit::never || every->unit == Every::Unit::epoch) {
    settings.push_back({strategy, every->unit == Every::Unit::never ? "no" : "epoch"});
  } else if (every->unit == Every::Unit::steps) {
    settings.push_back({steps, static_cast<std::int64_t>(every->count)});
  } else {
    settings.push_back({steps, every->count});
  }
}

// The Trainer's evaluation, in batches of what `batch` names. `held_out`: what is evaluated, which
// is the user's. Predictions are the logits where the script has metrics, which no file says.
void add_evaluation(const Plan& plan,
                    const char* batch,
                    const FormSetting& held_out,
                    FormSettings& settings) {
  if (plan.evaluation == nullptr) return;
  const EvaluationSettings& evaluation = *plan.evaluation;
  add_own(held_out, settings);
  if (evaluation.samples > 0 && held_out.value.is_number()) {
    settings.back().value = evaluation.samples;
  }
  settings.push_back({batch, evaluation.batch_size});
  if (evaluation.accumulation_steps > 0) {
    settings.push_back({"eval_accumulation_steps", evaluation.accumulation_steps});
  }
  const Every every = plan.loop.evaluate.value_or(Every{Every::Unit::epoch, 0.0});
  const bool counts = every.unit == Every::Unit::steps || every.unit == Every::Unit::share;
  if (counts) settings.push_back({"eval_strategy", "steps"});
  add_every("eval_strategy", "eval_steps", every, {}, settings);
}

// What every run needs.
void add_run(const Plan& plan,
             const FormPlace& place,
             const char* epochs_name,
             FormSettings& settings) {
  add_own({"learning_rate", place.learning_rate.value_or(usual_learning_rate(plan))}, settings);
  add_own({epochs_name, planned_epochs(plan)}, settings);
  for (const FormSetting& setting : run_settings(plan)) settings.push_back(setting);
  add_own({"output_dir", "out"}, settings);
}

FormSettings of_llama_factory(const Plan& plan, const FormPlace& place) {
  const Workload& work = plan.workload;
  FormSettings settings = {{"model_name_or_path", place.model},
                           {"stage", "sft"},
                           {"do_train", true},
                           {"finetuning_type", has_adapters(plan) ? "lora" : "full"}};
  if (has_adapters(plan)) {
    settings.push_back({"lora_rank", work.lora.rank});
    settings.push_back({"lora_dropout", work.lora.dropout});
    settings.push_back({"lora_target", joined(work.lora.targets)});
  }
  if (work.method == Method::qlora) {
    settings.push_back({"quantization_bit", 4});
    settings.push_back({"quantization_method", "bnb"});
    settings.push_back({"quantization_type", name(kFourBitCodeNames, work.lora.weights.code)});
    settings.push_back({"double_quantization", work.lora.weights.double_quant});
  }
  add_engine(plan, place, settings);
  add_own({"dataset", "my_dataset", "yours"}, settings);
  add_own({"template", "default", "the model's"}, settings);
  settings.push_back({"cutoff_len", work.sequence_length});
  if (packs(plan)) settings.push_back({"packing", true});
  add_batch(plan, settings);
  add_precision(plan, settings);
  add_optimizer(plan, "optim", settings);
  constexpr std::array kAttention = {"disabled", "sdpa", "fa2"};
  settings.push_back({"flash_attn", kAttention[static_cast<std::size_t>(work.attention)]});
  settings.push_back({"disable_gradient_checkpointing", !checkpoints(plan)});
  if (checkpoints(plan)) settings.push_back({"use_reentrant_gc", work.checkpoint_reentrant});
  settings.push_back({"enable_liger_kernel", work.fused_loss});
  if (work.compile) settings.push_back({"torch_compile", true});
  add_evaluation(plan, "per_device_eval_batch_size", {"val_size", 0.1, "yours"}, settings);
  add_run(plan, place, "num_train_epochs", settings);
  return settings;
}

void add_axolotl_adapters(const Plan& plan, FormSettings& settings) {
  const Workload& work = plan.workload;
  if (!has_adapters(plan)) return;
  const bool four_bits = work.method == Method::qlora;
  settings.push_back({"adapter", four_bits ? "qlora" : "lora"});
  if (four_bits) {
    settings.push_back({"load_in_4bit", true});
    settings.push_back(
        {"bnb_config_kwargs",
         Json::object({{"bnb_4bit_quant_type", name(kFourBitCodeNames, work.lora.weights.code)},
                       {"bnb_4bit_use_double_quant", work.lora.weights.double_quant}})});
  }
  settings.push_back({"lora_r", work.lora.rank});
  add_own({"lora_alpha", 2 * work.lora.rank}, settings);
  settings.push_back({"lora_dropout", work.lora.dropout});
  settings.push_back({"lora_target_modules", names_of(work.lora.targets)});
}

// axolotl's own section has accelerate's names without their prefix.
void add_axolotl_engine(const Plan& plan, const FormPlace& place, FormSettings& settings) {
  if (plan.workload.engine != TrainingEngine::fsdp) return add_engine(plan, place, settings);
  const FsdpConfig& fsdp = plan.fsdp;
  settings.push_back({"fsdp_version", fsdp.version});
  if (fsdp.version == 1) {
    settings.push_back({"fsdp", Json::array({sharding_word(fsdp), "auto_wrap"})});
  }
  Json section =
      Json::object({{"offload_params", fsdp.offload},
                    {"cpu_ram_efficient_loading", plan.workload.loading == Loading::usual},
                    {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                    {"state_dict_type", "FULL_STATE_DICT"}});
  if (fsdp.version == 2) {
    section["reshard_after_forward"] = fsdp.sharding == Sharding::full;
  } else {
    section["sync_module_states"] = true;
    section["use_orig_params"] = uses_original_parameters(plan);
  }
  settings.push_back({"fsdp_config", section});
  add_sync(plan, settings);
}

FormSettings of_axolotl(const Plan& plan, const FormPlace& place) {
  const Workload& work = plan.workload;
  FormSettings settings = {{"base_model", place.model}};
  add_axolotl_adapters(plan, settings);
  add_axolotl_engine(plan, place, settings);
  const Json data = Json::object({{"path", "my_dataset.jsonl"}, {"type", "chat_template"}});
  add_own({"datasets", Json::array({data}), "yours"}, settings);
  if (plan.evaluation == nullptr) add_own({"val_set_size", 0}, settings);
  add_evaluation(plan, "eval_batch_size", {"val_set_size", 0.1, "yours"}, settings);
  settings.push_back({"sequence_len", work.sequence_length});
  settings.push_back({"sample_packing", packs(plan)});
  const bool to_the_end = work.dataset && work.dataset->padding == Padding::max;
  settings.push_back({"pad_to_sequence_len", packs(plan) || to_the_end});
  settings.push_back({"micro_batch_size", work.micro_batch_size});
  settings.push_back({"gradient_accumulation_steps", work.gradient_accumulation_steps});
  add_precision(plan, settings);
  add_optimizer(plan, "optimizer", settings);
  constexpr std::array kAttention = {"eager", "sdpa", "flash_attention_2"};
  settings.push_back({"attn_implementation", kAttention[static_cast<std::size_t>(work.attention)]});
  add_checkpointing(plan, settings);
  if (work.fused_loss) {
    settings.push_back({"plugins", Json::array({"axolotl.integrations.liger.LigerPlugin"})});
    for (const char* name : {"liger_rope",
                             "liger_rms_norm",
                             "liger_glu_activation",
                             "liger_fused_linear_cross_entropy"}) {
      settings.push_back({name, true});
    }
  }
  if (work.tiled_mlp) settings.push_back({"tiled_mlp", true});
  if (work.compile) settings.push_back({"torch_compile", true});
  add_own({"lr_scheduler", "cosine"}, settings);
  add_run(plan, place, "num_epochs", settings);
  return settings;
}

void add_trl_adapters(const Plan& plan, FormSettings& settings) {
  const Workload& work = plan.workload;
  if (!has_adapters(plan)) return;
  settings.push_back({"use_peft", true});
  settings.push_back({"lora_r", work.lora.rank});
  add_own({"lora_alpha", 2 * work.lora.rank}, settings);
  settings.push_back({"lora_dropout", work.lora.dropout});
  settings.push_back({"lora_target_modules", names_of(work.lora.targets)});
  if (work.method != Method::qlora) return;
  settings.push_back({"load_in_4bit", true});
  settings.push_back({"bnb_4bit_quant_type", name(kFourBitCodeNames, work.lora.weights.code)});
  settings.push_back({"use_bnb_nested_quant", work.lora.weights.double_quant});
  if (work.engine == TrainingEngine::fsdp) {  // shards are of the type that stores the bits
    settings.push_back({"bnb_4bit_quant_storage", torch_name(loaded_dtype(plan))});
  }
}

void add_generation(const GenerationSettings& generation, FormSettings& settings) {
  settings.push_back({"max_completion_length", generation.completion_length});
  settings.push_back({"num_generations", generation.completions});
  if (generation.batches > 0) settings.push_back({"steps_per_generation", generation.batches});
  settings.push_back({"ds3_gather_for_generation", generation.gathers_model});
  if (generation.by == GenerationBy::trainer) return;
  const bool colocated = generation.by == GenerationBy::colocated;
  settings.push_back({"use_vllm", true});
  settings.push_back({"vllm_mode", colocated ? "colocate" : "server"});
  if (!colocated) return;
  settings.push_back({"vllm_gpu_memory_utilization", generation.memory_share});
  settings.push_back({"vllm_tensor_parallel_size", generation.tensor_parallel});
  settings.push_back({"vllm_enable_sleep_mode", generation.sleeps});
}

// What the commands sft, dpo, kto and grpo have of their own.
void add_trl_trainer(const Plan& plan, FormSettings& settings) {
  const TrainerSettings* trainer = plan.trainer.get();
  if (trainer == nullptr) {
    settings.push_back({"max_length", plan.workload.sequence_length});
    settings.push_back({"packing", packs(plan)});
    return;
  }
  settings.push_back({"beta", trainer->beta});
  if (trainer->generates()) {
    add_generation(trainer->generation, settings);
    add_own({"reward_funcs", Json::array({"my_rewards.score"}), "yours"}, settings);
    return;
  }
  settings.push_back({"max_length", plan.workload.sequence_length});
  settings.push_back({"precompute_ref_log_probs", trainer->precompute_reference});
}

FormSettings of_trl(const Plan& plan, const FormPlace& place) {
  const Workload& work = plan.workload;
  FormSettings settings = {{"model_name_or_path", place.model}};
  settings.push_back({"dtype", torch_name(loaded_dtype(plan)), "torch_dtype before TRL 0.23"});
  constexpr std::array kAttention = {"eager", "sdpa", "flash_attention_2"};
  settings.push_back({"attn_implementation", kAttention[static_cast<std::size_t>(work.attention)]});
  add_trl_adapters(plan, settings);
  add_engine(plan, place, settings);
  add_own({"dataset_name", "my_dataset", "yours"}, settings);
  add_trl_trainer(plan, settings);
  const char* const batch = "per_device_eval_batch_size";
  add_evaluation(plan, batch, {"dataset_test_split", "test", "yours"}, settings);
  add_batch(plan, settings);
  add_precision(plan, settings);
  add_optimizer(plan, "optim", settings);
  add_checkpointing(plan, settings);
  if (work.fused_loss) settings.push_back({"use_liger_kernel", true});
  if (work.compile) settings.push_back({"torch_compile", true});
  add_run(plan, place, "num_train_epochs", settings);
  return settings;
}

// Of run_clm.py and run_mlm.py, which have no argument for attention and adapters.
FormSettings of_trainer(const Plan& plan, const FormPlace& place) {
  const Workload& work = plan.workload;
  const bool encoder = plan.model->shape.kind == ModelKind::encoder;
  FormSettings settings = {{"model_name_or_path", place.model}, {"do_train", true}};
  add_engine(plan, place, settings);
  add_own({"train_file", "train.jsonl", "yours"}, settings);
  const FormSetting held_out{"validation_file", "validation.jsonl", "yours"};
  add_evaluation(plan, "per_device_eval_batch_size", held_out, settings);
  if (plan.evaluation != nullptr) add_own({"do_eval", true}, settings);
  settings.push_back({encoder ? "max_seq_length" : "block_size", work.sequence_length});
  add_batch(plan, settings);
  add_precision(plan, settings);
  add_optimizer(plan, "optim", settings);
  add_checkpointing(plan, settings);
  if (work.fused_loss) settings.push_back({"use_liger_kernel", true});
  if (work.compile) settings.push_back({"torch_compile", true});
  add_run(plan, place, "num_train_epochs", settings);
  return settings;
}

}  // namespace

std::string optimizer_argument(const Plan& plan) {
  const Workload& work = plan.workload;
  // Where ds_config.json names one, DeepSpeed makes it (model/plan/resolve_ds_config).
  if (runs_deepspeed(work) && plan.ds_config.is_set(Knob::optimizer_type)) return "";
  switch (work.optimizer) {
    case OptimizerName::adamw:
    case OptimizerName::adam:
      return work.optimizer_implementation == OptimizerImplementation::fused ? "adamw_torch_fused"
                                                                             : "adamw_torch";
    case OptimizerName::lion:
      return "lion_32bit";
    case OptimizerName::adafactor:
      return "adafactor";
    case OptimizerName::sgd:
      return "sgd";
    case OptimizerName::adamw8bit:
      return "adamw_bnb_8bit";
    case OptimizerName::muon:  // DeepSpeed's alone, by ds_config.json
      return "";
  }
  return "";
}

// Source: PyTorch's _writeback_orig_params and bitsandbytes' Params4bit, whose storage moves
// between forward and backward; rehearsed with torch 2.11: SHARD_GRAD_OP ends there, FULL_SHARD
// does not.
bool uses_original_parameters(const Plan& plan) { return plan.workload.method != Method::qlora; }

double usual_learning_rate(const Plan& plan) {
  // What "auto" becomes where nobody says (training_args.py) is nobody's choice.
  constexpr double kOfTrainer = 5e-5;
  const std::optional<double> said = plan.ds_config.real(Knob::optimizer_lr);
  if (said && *said != kOfTrainer) return *said;
  const bool adapters = has_adapters(plan);
  if (plan.trainer == nullptr || plan.trainer->distils()) return adapters ? 2.0e-4 : 2.0e-5;
  if (plan.trainer->trains_values()) return 3.0e-6;
  if (plan.trainer->generates()) return 1.0e-6;
  return adapters ? 5.0e-6 : 5.0e-7;
}

double planned_epochs(const Plan& plan) {
  return plan.workload.dataset ? plan.workload.dataset->epochs : 1.0;
}

FormSettings run_settings(const Plan& plan) {
  FormSettings settings;
  const TrainingLoop& loop = plan.loop;
  add_every("logging_strategy", "logging_steps", loop.log, {"logging_steps", 1}, settings);
  add_every("save_strategy", "save_steps", loop.save, {"save_strategy", "no"}, settings);
  if (loop.dataloader_workers) {
    settings.push_back({"dataloader_num_workers", *loop.dataloader_workers});
  }
  return settings;
}

FormSettings settings_of(const Plan& plan, Form form, const FormPlace& place) {
  switch (form) {
    case Form::llama_factory:
      return of_llama_factory(plan, place);
    case Form::axolotl:
      return of_axolotl(plan, place);
    case Form::trainer:
      return of_trainer(plan, place);
    default:
      return of_trl(plan, place);
  }
}

}  // namespace zeroplan::foreign
