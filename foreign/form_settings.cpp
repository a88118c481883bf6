#include "foreign/form_settings.hpp"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "foreign/setting_table.hpp"
#include "foreign/setting_values.hpp"
#include "model/plan/trainer.hpp"
#include "model/plan/workload_document.hpp"
#include "model/quantization.hpp"

namespace zeroplan::foreign {
namespace {

bool has_adapters(const Plan& plan) { return plan.workload.method != Method::full; }

bool shards(const Plan& plan) { return plan.workload.engine == TrainingEngine::fsdp; }

// What the weights are loaded in: DeepSpeed casts them, the others keep what they get.
DType loaded_dtype(const Plan& plan) {
  if (shards(plan)) return plan.fsdp.storage_dtype;
  if (plan.workload.engine == TrainingEngine::ddp) return plan.ddp.weight_dtype;
  return plan.engine.model_dtype;
}

// "full_shard": one word for the sharding, as TrainingArguments.fsdp has it.
std::string sharding_word(const FsdpConfig& fsdp) {
  const bool hybrid = fsdp.shard_ranks > 1 && fsdp.shard_ranks < fsdp.ranks;
  if (fsdp.sharding == Sharding::no_shard) return "no_shard";
  if (hybrid) return fsdp.sharding == Sharding::full ? "hybrid_shard" : "hybrid_shard_zero2";
  return fsdp.sharding == Sharding::full ? "full_shard" : "shard_grad_op";
}

// TrainingArguments.fsdp_config; prefix "fsdp_" in accelerate's file and in older releases.
Json trainer_section(const Plan& plan) {
  const FsdpConfig& fsdp = plan.fsdp;
  Json section =
      Json::object({{"version", fsdp.version},
                    {"cpu_ram_efficient_loading", plan.workload.loading == Loading::usual}});
  if (fsdp.version == 2) {
    section["reshard_after_forward"] = fsdp.sharding == Sharding::full;
    section["cpu_offload"] = fsdp.offload;
    return section;
  }
  section["backward_prefetch"] = "backward_pre";
  section["forward_prefetch"] = false;
  section["limit_all_gathers"] = true;
  section["use_orig_params"] = fsdp.original_parameters;
  return section;
}

// axolotl's own section has accelerate's names without their prefix.
Json axolotl_section(const Plan& plan) {
  const FsdpConfig& fsdp = plan.fsdp;
  Json section =
      Json::object({{"offload_params", fsdp.offload},
                    {"cpu_ram_efficient_loading", plan.workload.loading == Loading::usual},
                    {"auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                    {"state_dict_type", "FULL_STATE_DICT"}});
  if (fsdp.version == 2) {
    section["reshard_after_forward"] = fsdp.sharding == Sharding::full;
  } else {
    section["sync_module_states"] = true;
    section["use_orig_params"] = fsdp.original_parameters;
  }
  return section;
}

// `fsdp` of a plan's parts; of DDP, which runs where nothing is said, and of DeepSpeed there is
// none.
void add_sharding(const Plan& plan, Form form, Json& parts) {
  const Workload& work = plan.workload;
  parts.erase("sync_each_batch");
  if (!shards(plan)) {
    parts.erase("fsdp_version");
    return;
  }
  const FsdpConfig& fsdp = plan.fsdp;
  const std::string word = sharding_word(fsdp);
  const bool axolotl = form == Form::axolotl;
  parts["fsdp"] =
      Json::object({{"section", axolotl ? axolotl_section(plan) : trainer_section(plan)}});
  if (!axolotl) {
    parts["fsdp"]["words"] = word + (fsdp.offload ? " offload" : "") + " auto_wrap";
  } else if (fsdp.version == 1) {
    parts["fsdp"]["words"] = Json::array({word, "auto_wrap"});
  }
  if (work.sync_each_batch && work.frontend == Frontend::hf_trainer) {
    parts["sync_each_batch"] = true;
  }
}

// `method`: adapters with what the tools call the bits of their base.
Json method_part(const Plan& plan) {
  const LoraSettings& lora = plan.workload.lora;
  Json part = Json::object({{"kind", name(kMethodNames, plan.workload.method)}});
  if (!has_adapters(plan)) return part;
  part["rank"] = lora.rank;
  part["dropout"] = lora.dropout;
  part["targets"] = Json::array();
  for (const std::string& target : lora.targets) part["targets"].push_back(target);
  if (plan.workload.method != Method::qlora) return part;
  part["bits"] = 4;
  part["four_bits"] = true;
  part["maker"] = "bnb";
  part["quant"] = name(kFourBitCodeNames, lora.weights.code);
  part["double_quant"] = lora.weights.double_quant;
  return part;
}

// A strategy of the Trainer's, and its steps where it counts them. `says_steps`: it is not the
// usual one.
Json strategy_part(const Every& every, bool says_steps) {
  Json part = Json::object();
  switch (every.unit) {
    case Every::Unit::never:
      part["strategy"] = "no";
      return part;
    case Every::Unit::epoch:
      part["strategy"] = "epoch";
      return part;
    default:
      if (says_steps) part["strategy"] = "steps";
      const bool whole = every.unit == Every::Unit::steps;
      part["steps"] = whole ? Json(static_cast<std::int64_t>(every.count)) : Json(every.count);
      return part;
  }
}

void add_loop(const Plan& plan, Json& parts) {
  const TrainingLoop& loop = plan.loop;
  if (loop.log) parts["log"] = strategy_part(*loop.log, false);
  if (loop.save) parts["save"] = strategy_part(*loop.save, false);
  if (plan.evaluation == nullptr) return;
  parts["evaluation"] = Json(parts.find("evaluation")->members()[0].second);
  parts["eval"] = strategy_part(loop.evaluate.value_or(Every{Every::Unit::epoch, 0.0}), true);
}

// What no scenario has. The evaluated samples are the user's, but for their number.
Json run_part(const Plan& plan, const FormPlace& place) {
  Json run =
      Json::object({{"learning_rate", place.learning_rate.value_or(usual_learning_rate(plan))}});
  if (has_adapters(plan)) run["lora_alpha"] = 2 * plan.workload.lora.rank;
  const bool counted = plan.evaluation != nullptr && plan.evaluation->samples > 0;
  if (counted) run["samples"] = plan.evaluation->samples;
  return run;
}

}  // namespace

Json parts_of(const Plan& plan, Form form, const FormPlace& place) {
  Json parts = workload_document(plan);
  parts["model"] = place.model;
  if (plan.workload.engine == TrainingEngine::deepspeed) parts["ds_config"] = place.ds_config;
  parts["weights_dtype"] = name(loaded_dtype(plan));
  // Shards are of the type that stores the bits.
  const bool stored = shards(plan) && plan.workload.method == Method::qlora;
  if (stored) parts["storage"] = name(loaded_dtype(plan));
  parts["method"] = method_part(plan);
  parts["optimizer"] = optimizer_argument(plan);
  if (optimizer_argument(plan).empty()) parts.erase("optimizer");
  if (plan.workload.activation_checkpointing == ActivationCheckpointing::none) {
    parts.erase("checkpoint_reentrant");
  }
  add_sharding(plan, form, parts);
  add_loop(plan, parts);
  parts["run"] = run_part(plan, place);
  if (plan.trainer == nullptr) {
    parts["sft"] = true;
    return parts;
  }
  parts["trainer"] = Json(parts.find("trainer")->members()[0].second);
  if (plan.trainer->generates()) parts.erase("sequence_length");
  return parts;
}

const Json* part_at(const Json& parts, std::string_view path) {
  const Json* part = &parts;
  while (part != nullptr && !path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    part = part->find(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return part;
}

namespace {

bool is_there(const Json* part) { return part != nullptr && *part != Json(false); }

// A name with dots is a member of a section.
void add(std::string_view name, FormSetting setting, FormSettings& settings) {
  const std::size_t dot = name.find('.');
  setting.name = name.substr(0, dot);
  if (dot == std::string_view::npos) return settings.push_back(std::move(setting));
  const bool begun = !settings.empty() && settings.back().name == setting.name;
  if (!begun) settings.push_back({setting.name, Json::object()});
  Json* section = &settings.back().value;
  for (name.remove_prefix(dot + 1); name.find('.') != std::string_view::npos;
       name.remove_prefix(name.find('.') + 1)) {
    section = &(*section)[name.substr(0, name.find('.'))];
    if (section->is_null()) *section = Json::object();
  }
  (*section)[name] = std::move(setting.value);
}

// The setting of a name as its row says it; none where the plan has no such part.
void write(std::string_view name, const Json& parts, FormSettings& settings) {
  const bool where_on = name.ends_with('?');
  if (where_on) name.remove_suffix(1);
  const SettingRow& row = *find_row(name, Tool::trainer);
  if (!row.when.empty() && !is_there(part_at(parts, row.when))) {
    if (row.otherwise != nullptr) add(name, {"", *row.otherwise, "", false}, settings);
    return;
  }
  const std::string comment(row.comment);
  if (row.always != nullptr) return add(name, {"", *row.always, comment}, settings);
  const std::string_view root = row.is.substr(0, row.is.find('.'));
  const bool of_run = root.empty() || root == "run";
  std::optional<Json> value =
      row.is.empty() ? std::nullopt : written_value(row, part_at(parts, row.is));
  const bool unsaid = of_run || parts.find(root) == nullptr;
  const bool own = !value && unsaid && row.own != nullptr;
  if (own) value = *row.own;
  if (!value || (where_on && !is_on(*value))) return;
  add(name, {"", std::move(*value), comment, !own && !of_run}, settings);
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
  Json parts = workload_document(plan);
  add_loop(plan, parts);
  FormSettings settings;
  for (const char* name : {"logging_strategy",
                           "logging_steps",
                           "save_strategy",
                           "save_steps",
                           "dataloader_num_workers"}) {
    write(name, parts, settings);
  }
  return settings;
}

FormSettings settings_of(const Plan& plan, Form form, const FormPlace& place) {
  const bool scripted = form == Form::shell || form == Form::sbatch;
  const std::string_view tool = name(kFormNames, scripted ? Form::trl : form);
  const Json parts = parts_of(plan, form, place);
  FormSettings settings;
  for (const std::string_view one : written_names(tool)) {
    // run_mlm.py's name for what is block_size in run_clm.py.
    const bool encoder = one == "block_size" && plan.model->shape.kind == ModelKind::encoder;
    write(encoder ? "max_seq_length" : one, parts, settings);
  }
  return settings;
}

}  // namespace zeroplan::foreign
