#include "cli/from/meaning.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/from/adapters.hpp"
#include "cli/from/loop_words.hpp"
#include "cli/from/setting_roles.hpp"
#include "cli/from/sharding.hpp"
#include "cli/from/trainer_meaning.hpp"
#include "cli/from/unplanned.hpp"
#include "model/diagnostic.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/written_names.hpp"

namespace zeroplan::from {
namespace {

namespace fs = std::filesystem;

class MeaningReader {
 public:
  MeaningReader(const Part& part, Meaning& meaning) : part_(part), meaning_(meaning) {}

  void read() {
    for (const Setting& setting : part_.settings) read_setting(setting);
    adapters_.finish(part_.tool, meaning_);
    sharding_.finish(meaning_);
    loop_.finish(part_.tool, meaning_);
    loop_.finish_evaluation(part_.tool, meaning_);
    finish_precision();
    finish_weights();
    finish_trainer();
    finish_tool();
  }

 private:
  void read_setting(const Setting& setting) {
    refuse_unplanned(setting, part_.tool);
    if (says_nothing(setting.value)) return;
    if (trainer_.read(setting)) {
      note(setting, "--trainer");
      return;
    }
    trl_ = trl_ || setting.name == "trl";
    if (setting.name == "script" || setting.name == "trl") return;
    const std::optional<Role> role = role_of(setting.name);
    if (role) {
      if (!loop_.read(*role, setting) && !apply(*role, setting)) note(setting, "");
    } else {
      if (!changes_nothing(setting.name)) meaning_.unknown.push_back(line_of(setting, ""));
      if (setting.in_document) meaning_.kept.push_back(setting);
    }
  }

  ReadLine line_of(const Setting& setting, const Phrase& taken) const {
    return {setting.file, setting.line, setting.name + ": " + shown(setting.value), taken};
  }

  static std::string shown(const Json& value) {
    const std::string text = text_of(value);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  void note(const Setting& setting, const Phrase& taken) {
    meaning_.read.push_back(line_of(setting, taken));
  }

  // What was said before, in a part that counts over this one, stays.
  bool set(ScenarioKey key, const Json& value, const Setting& setting) {
    if (meaning_.scenario.find(key) != nullptr) return true;
    const Origin origin{setting.file,
                        setting.line > 0
                            ? "line " + std::to_string(setting.line) + ": " + setting.name
                            : setting.name};
    const bool inline_value = value.is_object() || value.is_boolean();
    const Json checked = inline_value ? value : checked_value(key, text_of(value), origin);
    meaning_.scenario.set(key, checked, origin);
    const bool as_written = !inline_value && text_of(value).find('$') == std::string::npos;
    const std::string taken = as_written     ? text_of(value)
                              : inline_value ? checked.dump()
                                             : text_of(checked);
    note(setting, std::string(info(key).flag) + " " + taken);
    return true;
  }

  // "${SEQ}", "$SEQ" is filled in by whoever starts the training: nobody knows it here but the
  // flags.
  Json checked_value(ScenarioKey key, const std::string& text, const Origin& origin) const {
    const bool is_variable = text.find('$') != std::string::npos;
    const auto flag = meaning_.flags.find(key);
    if (is_variable && flag != meaning_.flags.end()) {
      return parse_flag(info(key), flag->second, std::string(info(key).flag));
    }
    try {
      return parse_flag(info(key), text, origin.pointer);
    } catch (const InputError& error) {
      std::vector<Diagnostic> problems = error.diagnostics();
      for (Diagnostic& problem : problems) {
        problem.file = origin.file;
        problem.pointer = origin.pointer;
        if (!is_variable) continue;
        problem.hint = phrase("a variable that is not set here: say {}", info(key).flag);
      }
      throw InputError(problems);
    }
  }

  bool apply(Role role, const Setting& setting) {
    const Json& value = setting.value;
    switch (role) {
      case Role::model:
        return set(ScenarioKey::model, path_beside(setting), setting);
      case Role::sequence:
        return set(ScenarioKey::sequence_length, value, setting);
      case Role::micro_batch:
        return set(ScenarioKey::micro_batch_size, value, setting);
      case Role::accumulation:
        return text_of(value) == "auto" ||
               set(ScenarioKey::gradient_accumulation_steps, value, setting);
      case Role::bf16:
        return half("bf16", setting);
      case Role::fp16:
        return half("fp16", setting);
      case Role::mixed_precision:
        return set(
            ScenarioKey::precision, text_of(value) == "no" ? "fp32" : text_of(value), setting);
      case Role::optimizer:
        return optimizer(setting);
      case Role::attention:
        return attention(attention_of(text_of(value)), setting);
      case Role::flash:
        return is_on(value) && attention("flash", setting);
      case Role::sdpa:
        return is_on(value) && attention("sdpa", setting);
      case Role::eager:
        return is_on(value) && attention("eager", setting);
      case Role::checkpointing:
        return set(ScenarioKey::activation_checkpointing, is_on(value) ? "full" : "none", setting);
      case Role::no_checkpointing:
        return set(ScenarioKey::activation_checkpointing, is_on(value) ? "none" : "full", setting);
      case Role::checkpointing_arguments:
        return checkpointing_arguments(setting);
      case Role::reentrant:
        return set(ScenarioKey::checkpoint_reentrant, is_on(value), setting);
      case Role::ds_config:
        return ds_config(setting);
      case Role::fsdp:
        return fsdp(setting);
      case Role::fsdp_arguments:
        return fsdp_arguments(setting);
      case Role::fsdp_version:
        return set(ScenarioKey::fsdp_version, value, setting);
      case Role::ddp:
        meaning_.says_ddp = text_of(value) == "MULTI_GPU";
        if (meaning_.says_ddp) note(setting, std::string(info(ScenarioKey::engine).flag) + " ddp");
        return true;
      case Role::dtype:
        dtype_ = &setting;
        return true;
      case Role::pure_bf16:
        if (is_on(setting.value)) pure_bf16_ = &setting;
        return true;
      case Role::device_map:
        return device_map(setting);
      case Role::tiled_mlp:
        return set(ScenarioKey::tiled_mlp, is_on(value), setting);
      case Role::fused_loss:
        return set(ScenarioKey::fused_loss, is_on(value), setting);
      case Role::compile:
        return set(ScenarioKey::compile, is_on(value), setting);
      case Role::dataloader_workers:
        return set(ScenarioKey::dataloader_num_workers, value, setting);
      default:
        return adapter(role, setting);
    }
  }

  bool attention(const std::string& name, const Setting& setting) {
    return !name.empty() && set(ScenarioKey::attention, name, setting);
  }

  bool checkpointing_arguments(const Setting& setting) {
    const Json* said = setting.value.find("use_reentrant");
    // On a command line it is JSON text.
    Json parsed;
    if (setting.value.is_string()) {
      parsed = parse_json(setting.value.as_string(), setting.file).root;
      said = parsed.find("use_reentrant");
    }
    return said != nullptr && set(ScenarioKey::checkpoint_reentrant, is_on(*said), setting);
  }

  // A path is written for the folder where the training starts: the file's own, or the one where
  // zeroplan runs.
  Json path_beside(const Setting& setting) const {
    const std::string path = text_of(setting.value);
    const fs::path beside = fs::path(setting.file).parent_path() / path;
    std::error_code none;
    if (!fs::exists(path, none) && fs::exists(beside, none)) return beside.string();
    return path;
  }

  bool ds_config(const Setting& setting) {
    if (setting.value.is_boolean() || text_of(setting.value) == "true") return false;  // a switch
    // The script's own argument parser (deepspeed.add_config_arguments): a loop of its own.
    native_ = native_ || setting.name == "deepspeed_config";
    engine("deepspeed", setting);
    if (setting.value.is_object()) return set(ScenarioKey::ds_config, setting.value, setting);
    return set(ScenarioKey::ds_config, path_beside(setting), setting);
  }

  void engine(const char* name, const Setting& setting) {
    if (meaning_.scenario.find(ScenarioKey::engine) != nullptr) return;
    meaning_.scenario.set(ScenarioKey::engine, name, {setting.file, setting.name});
  }

  bool fsdp(const Setting& setting) {
    if (!sharding_.read_words(setting)) return false;
    engine("fsdp", setting);
    note(setting, "--engine fsdp");
    return true;
  }

  // On a command line it is JSON text, or the name of a file.
  Json section_of(const Setting& setting) const {
    if (!setting.value.is_string()) return setting.value;
    const std::string& text = setting.value.as_string();
    if (text.starts_with('{')) return parse_json(text, setting.file).root;
    const std::string path = path_beside(setting).as_string();
    return parse_json(read_text_file(path), path).root;
  }

  bool fsdp_arguments(const Setting& said) {
    Setting setting = said;
    setting.value = section_of(said);
    for (const char* name : {"fsdp_version", "version"}) {
      const Json* version = setting.value.find(name);
      if (version != nullptr) set(ScenarioKey::fsdp_version, *version, setting);
    }
    sharding_.read_section(setting);
    // The Trainer heeds the section where --fsdp is on, axolotl by itself.
    if (part_.tool == Tool::axolotl && !setting.value.members().empty()) engine("fsdp", said);
    note(said, "--engine fsdp");
    return true;
  }

  // Both off: 32 bits, and a ds_config that says otherwise is the Trainer's error.
  bool half(const char* name, const Setting& setting) {
    if (is_on(setting.value)) return set(ScenarioKey::precision, name, setting);
    (std::string_view(name) == "bf16" ? no_bf16_ : no_fp16_) = &setting;
    return false;
  }

  void finish_precision() {
    const bool open = meaning_.scenario.find(ScenarioKey::precision) == nullptr;
    if (no_bf16_ != nullptr && no_fp16_ != nullptr && open) {
      set(ScenarioKey::precision, "fp32", *no_bf16_);
    }
  }

  // How torch.optim's AdamW goes over the tensors, where the name says it.
  bool optimizer(const Setting& setting) {
    const std::string said = text_of(setting.value);
    const bool plain = said == "adamw_torch";
    if (plain || said == "adamw_torch_fused") {
      meaning_.scenario.set(ScenarioKey::optimizer_implementation,
                            plain ? "foreach" : "fused",
                            {setting.file, setting.name});
    }
    return set(ScenarioKey::optimizer, optimizer_of(said), setting);
  }

  bool adapter(Role role, const Setting& setting) {
    adapters_.read(role, setting);
    note(setting, "--method");
    return true;
  }

  // What weights are loaded in. DeepSpeed casts them. LLaMA-Factory makes what it trains fp32
  // (model/adapter.py init_adapter), TRL's command and axolotl say a dtype where the file says
  // none.
  void finish_weights() {
    const ExplicitValue* engine = meaning_.scenario.find(ScenarioKey::engine);
    const bool casts = engine != nullptr && engine->value == Json("deepspeed");
    const ExplicitValue* method = meaning_.scenario.find(ScenarioKey::method);
    const bool full = method != nullptr && method->value == Json("full");
    const bool adapters = method != nullptr && !full;
    if (pure_bf16_ != nullptr && casts) {
      refuse(*pure_bf16_, "weights and optimizer states all in bf16 under DeepSpeed");
    }
    if (pure_bf16_ != nullptr) {
      set(ScenarioKey::weights_dtype, "pure-bf16", *pure_bf16_);
      meaning_.scenario.set(ScenarioKey::precision, "bf16", {pure_bf16_->file, pure_bf16_->name});
    } else if (dtype_ != nullptr) {
      read_dtype(*dtype_, casts, no_bf16_ != nullptr && no_fp16_ != nullptr);
    } else if (part_.tool == Tool::llama_factory && !casts && full) {
      assume_weights("fp32", "weights in fp32: LLaMA-Factory makes what it trains fp32");
    } else if (part_.tool == Tool::axolotl && !casts && !adapters && computes_in_bf16()) {
      assume_weights("bf16", "weights in bf16: axolotl loads them so where bf16 is on");
    } else if (trl_ && !casts && !adapters) {
      assume_weights("fp32", "weights in fp32: dtype float32 is TRL's default");
    }
  }

  bool computes_in_bf16() const {
    const ExplicitValue* precision = meaning_.scenario.find(ScenarioKey::precision);
    return precision != nullptr && precision->value == Json("bf16");
  }

  void assume_weights(const char* format, const char* sentence) {
    if (meaning_.scenario.find(ScenarioKey::weights_dtype) != nullptr) return;
    meaning_.scenario.set(
        ScenarioKey::weights_dtype, format, {part_.settings.front().file, "dtype"});
    meaning_.assumed.emplace_back(sentence);
  }

  // `alone`: mixed precision is switched off beside it.
  void read_dtype(const Setting& setting, bool casts, bool alone) {
    const std::string text = text_of(setting.value);
    const std::string name = text.starts_with("torch.") ? text.substr(6) : text;
    const char* format = name == "bfloat16" || name == "bf16"  ? "bf16"
                         : name == "float16" || name == "fp16" ? "fp16"
                         : name == "float32" || name == "fp32" ? "fp32"
                                                               : nullptr;  // auto: the checkpoint's
    if (format == nullptr || casts) {
      note(setting, casts ? Phrase("DeepSpeed casts to its own format") : Phrase(""));
      return;
    }
    const bool pure = alone && std::string_view(format) == "bf16";
    if (pure) meaning_.scenario.set(ScenarioKey::precision, "bf16", {setting.file, setting.name});
    set(ScenarioKey::weights_dtype, pure ? "pure-bf16" : format, setting);
  }

  // {"": "cpu"}, on a command line as JSON text; "auto" and numbers are GPUs.
  bool device_map(const Setting& setting) {
    const std::string text = text_of(setting.value);
    const bool cpu = text.find("cpu") != std::string::npos;
    return cpu && set(ScenarioKey::load_device, "cpu", setting);
  }

  void finish_trainer() {
    const Json trainer = trainer_.trainer();
    if (trainer.is_null()) return;
    const Origin origin{part_.settings.front().file, "trainer"};
    const auto add = [&](ScenarioKey key, const Json& value) {
      if (!value.is_null() && meaning_.scenario.find(key) == nullptr) {
        meaning_.scenario.set(key, value, origin);
      }
    };
    add(ScenarioKey::trainer, trainer);
    add(ScenarioKey::sequence_length, trainer_.sequence_length());
    add(ScenarioKey::models, trainer_.models());
    add(ScenarioKey::model, trainer_.policy());
  }

  bool says_a_training() const {
    return std::any_of(part_.settings.begin(), part_.settings.end(), [](const Setting& setting) {
      return role_of(setting.name).has_value();
    });
  }

  // Whose defaults count for what nobody says.
  void finish_tool() {
    meaning_.native = meaning_.native || native_;
    if (!meaning_.training.name.empty() || !says_a_training()) return;
    if (part_.tool == Tool::accelerate) return;
    meaning_.training = part_.settings.front();
    meaning_.tool = part_.tool;
  }

  const Part& part_;
  Meaning& meaning_;
  AdapterWords adapters_;
  ShardingWords sharding_;
  LoopWords loop_;
  const Setting* no_bf16_ = nullptr;
  const Setting* no_fp16_ = nullptr;
  const Setting* dtype_ = nullptr;
  const Setting* pure_bf16_ = nullptr;
  bool trl_ = false;  // TRL's own command
  TrainerMeaning trainer_{part_.tool};
  bool native_ = false;
};

}  // namespace

void add_meaning(const Part& part, Meaning& meaning) {
  if (!part.settings.empty()) MeaningReader(part, meaning).read();
  Processes& all = meaning.processes;
  const Processes& said = part.processes;
  if (all.nodes == 0) all.nodes = said.nodes;
  if (all.per_node == 0) all.per_node = said.per_node;
  if (all.all == 0) all.all = said.all;
  if (all.gpu.empty()) all.gpu = said.gpu;
  if (all.threads == 0) {
    all.threads = said.threads;
    all.threads_launcher = said.threads_launcher;
  }
}

void add_defaults(Meaning& meaning) {
  finish_hybrid(meaning);
  if (meaning.training.name.empty()) return;
  const auto assume = [&](ScenarioKey key, Json value, const char* sentence) {
    if (meaning.scenario.find(key) != nullptr) return;
    meaning.scenario.set(key, std::move(value), {meaning.training.file, ""});
    if (sentence != nullptr) meaning.assumed.emplace_back(sentence);
  };
  assume(ScenarioKey::frontend, meaning.native ? "native" : "hf-trainer", nullptr);
  const Processes& processes = meaning.processes;
  if (processes.threads > 0) {
    assume(ScenarioKey::omp_num_threads,
           processes.threads,
           processes.threads_launcher.empty() ? nullptr
           : processes.threads_launcher == "torchrun"
               ? "OMP_NUM_THREADS 1: torchrun's default for several processes"
               : "OMP_NUM_THREADS 1: accelerate's default for several processes");
  }
  if (meaning.native) return;  // batch and precision are the ds_config's
  if (meaning.tool != Tool::axolotl) {
    assume(ScenarioKey::micro_batch_size,
           std::int64_t{8},
           "per_device_train_batch_size 8: the Trainer's default");
  }
  if (meaning.tool == Tool::llama_factory) {
    assume(ScenarioKey::method,
           Json::object({{"lora", Json::object({{"rank", 8}, {"targets", all_linear()}})}}),
           "finetuning_type lora: LLaMA-Factory's default");
    assume(ScenarioKey::sequence_length,
           std::int64_t{2048},
           "cutoff_len 2048: LLaMA-Factory's default");
    assume(ScenarioKey::activation_checkpointing,
           "full",
           "gradient checkpointing: LLaMA-Factory's default");
    assume(
        ScenarioKey::checkpoint_reentrant, true, "use_reentrant_gc true: LLaMA-Factory's default");
  }
  assume(ScenarioKey::gradient_accumulation_steps,
         std::int64_t{1},
         "gradient_accumulation_steps 1: the tool's default");
}

bool runs_ddp(const Meaning& meaning) {
  const bool trains = !meaning.training.name.empty() && !meaning.native;
  return (trains || meaning.says_ddp) && meaning.scenario.find(ScenarioKey::engine) == nullptr;
}

std::string cluster_of(const Processes& processes) {
  std::int64_t nodes = std::max<std::int64_t>(processes.nodes, 1);
  std::int64_t per_node = processes.per_node;
  if (processes.all > 0 && (per_node == 0 || nodes * per_node != processes.all)) {
    if (processes.all % nodes != 0) nodes = 1;
    per_node = processes.all / nodes;
  }
  if (per_node == 0) return "";
  return std::to_string(nodes) + "x" + std::to_string(per_node) +
         (processes.gpu.empty() ? "" : "x" + processes.gpu);
}

}  // namespace zeroplan::from
