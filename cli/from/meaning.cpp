#include "cli/from/meaning.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/from/setting_roles.hpp"
#include "cli/from/trainer_meaning.hpp"
#include "cli/from/unplanned.hpp"
#include "model/diagnostic.hpp"
#include "model/written_names.hpp"

namespace zeroplan::from {
namespace {

namespace fs = std::filesystem;

class Reader {
 public:
  Reader(const Part& part, Meaning& meaning) : part_(part), meaning_(meaning) {}

  void read() {
    for (const Setting& setting : part_.settings) read_setting(setting);
    finish_adapter();
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
    if (setting.name == "script" || setting.name == "trl") return;
    const std::optional<Role> role = role_of(setting.name);
    if (role) {
      if (!apply(*role, setting)) note(setting, "");
    } else if (!changes_nothing(setting.name)) {
      meaning_.unknown.push_back(line_of(setting, ""));
    }
  }

  ReadLine line_of(const Setting& setting, const std::string& taken) const {
    return {setting.file, setting.line, setting.name + ": " + shown(setting.value), taken};
  }

  static std::string shown(const Json& value) {
    const std::string text = text_of(value);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  void note(const Setting& setting, const std::string& taken) {
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
    Json checked = value;
    if (!inline_value) {
      try {
        checked = parse_flag(info(key), text_of(value), origin.pointer);
      } catch (const InputError& error) {
        std::vector<Diagnostic> problems = error.diagnostics();
        for (Diagnostic& problem : problems) {
          problem.file = origin.file;
          problem.pointer = origin.pointer;
        }
        throw InputError(problems);
      }
    }
    meaning_.scenario.set(key, checked, origin);
    note(setting,
         std::string(info(key).flag) + " " + (inline_value ? checked.dump() : text_of(value)));
    return true;
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
        return is_on(value) && set(ScenarioKey::precision, "bf16", setting);
      case Role::fp16:
        return is_on(value) && set(ScenarioKey::precision, "fp16", setting);
      case Role::mixed_precision:
        return set(
            ScenarioKey::precision, text_of(value) == "no" ? "fp32" : text_of(value), setting);
      case Role::optimizer:
        return set(ScenarioKey::optimizer, optimizer_of(text_of(value)), setting);
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
      case Role::fused_loss:
        return set(ScenarioKey::fused_loss, is_on(value), setting);
      case Role::compile:
        return set(ScenarioKey::compile, is_on(value), setting);
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
    const bool off =
        setting.value.is_boolean() ? !setting.value.as_boolean() : names_in(setting.value).empty();
    if (off) return false;
    engine("fsdp", setting);
    for (const std::string& word : names_in(setting.value)) {
      if (word == "shard_grad_op") stage(2, setting);
      if (word == "no_shard") stage(0, setting);
      if (word == "offload") offload_ = true;
    }
    if (offload_) stage(3, setting);
    note(setting, "--engine fsdp");
    return true;
  }

  // FSDP's kind of sharding as zeroplan has it (docs/contract.md section 1).
  void stage(int number, const Setting& setting) {
    if (meaning_.scenario.find(ScenarioKey::ds_config) != nullptr) return;
    Json zero = Json::object({{"stage", number}});
    if (offload_) zero["offload_param"] = Json::object({{"device", "cpu"}});
    meaning_.scenario.set(ScenarioKey::ds_config,
                          Json::object({{"zero_optimization", zero}}),
                          {setting.file, setting.name});
  }

  bool fsdp_arguments(const Setting& setting) {
    const auto find = [&](const char* name) {
      const Json* found = setting.value.find(std::string("fsdp_") + name);
      return found != nullptr ? found : setting.value.find(name);
    };
    if (const Json* version = find("version")) {
      set(ScenarioKey::fsdp_version, *version, setting);
    }
    if (const Json* offload = find("offload_params"); offload != nullptr && is_on(*offload)) {
      offload_ = true;
      stage(3, setting);
    }
    if (const Json* kind = find("sharding_strategy")) {
      const std::string name = folded(text_of(*kind), "_-");
      if (name == "shardgradop" || name == "2") stage(2, setting);
      if (name == "noshard" || name == "3") stage(0, setting);
      if (name.find("hybrid") != std::string::npos) {
        meaning_.unknown.push_back(line_of(setting, ""));
        return true;
      }
    }
    note(setting, "--engine fsdp");
    return true;
  }

  // --- adapters, put together when all is read

  bool adapter(Role role, const Setting& setting) {
    const Json& value = setting.value;
    if (role == Role::adapter) method_ = text_of(value);
    if (role == Role::use_adapter && is_on(value) && method_.empty()) method_ = "lora";
    if (role == Role::rank) rank_ = value;
    if (role == Role::targets) targets_ = names_in(value);
    if (role == Role::all_targets && is_on(value)) targets_ = {"all"};
    if (role == Role::four_bits) four_bits_ = is_on(value);
    if (role == Role::bits) four_bits_ = count_of(value) == 4;
    adapter_ = &setting;
    note(setting, "--method");
    return true;
  }

  void finish_adapter() {
    if (method_.empty() && part_.tool == Tool::llama_factory && adapter_ != nullptr) {
      method_ = "lora";
      meaning_.assumed.push_back("finetuning_type lora: LLaMA-Factory's default");
    }
    const bool adapters = method_ == "lora" || method_ == "qlora";
    if (method_.empty() || meaning_.scenario.find(ScenarioKey::method) != nullptr) return;
    const Setting none{"finetuning_type", Json(), part_.settings.front().file, 0};
    const Setting& at = adapter_ != nullptr ? *adapter_ : none;
    const Origin origin{at.file, at.name};
    if (!adapters) {
      meaning_.scenario.set(
          ScenarioKey::method, parse_flag(info(ScenarioKey::method), method_), origin);
      return;
    }
    Json settings = Json::object();
    const bool all = targets_.size() == 1 && (targets_[0] == "all" || targets_[0] == "all-linear");
    if (part_.tool == Tool::llama_factory && rank_.is_null()) {
      rank_ = 8;
      meaning_.assumed.push_back("lora_rank 8: LLaMA-Factory's default");
    }
    if (!rank_.is_null()) settings["rank"] = count_of(rank_);
    if (all || (targets_.empty() && part_.tool == Tool::llama_factory)) {
      settings["targets"] = all_linear();
      meaning_.assumed.push_back(
          "LoRA on all linear layers: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
          "down_proj; "
          "a model that calls them otherwise wants --method with its names");
    } else if (!targets_.empty()) {
      Json names = Json::array();
      for (const std::string& name : targets_) names.push_back(name);
      settings["targets"] = names;
    }
    const char* method = method_ == "qlora" || four_bits_ ? "qlora" : "lora";
    meaning_.scenario.set(ScenarioKey::method, Json::object({{method, settings}}), origin);
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
  TrainerMeaning trainer_;
  std::string method_;
  Json rank_;
  std::vector<std::string> targets_;
  bool four_bits_ = false;
  bool offload_ = false;
  bool native_ = false;
  const Setting* adapter_ = nullptr;
};

}  // namespace

void add_meaning(const Part& part, Meaning& meaning) {
  if (!part.settings.empty()) Reader(part, meaning).read();
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
