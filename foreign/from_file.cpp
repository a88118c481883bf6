#include "foreign/from_file.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/described.hpp"
#include "base/diagnostic.hpp"
#include "base/written_names.hpp"
#include "foreign/launch.hpp"
#include "foreign/meaning.hpp"
#include "foreign/processes.hpp"
#include "foreign/yaml.hpp"
#include "model/families/hf_config.hpp"

namespace zeroplan::foreign {
namespace {

namespace fs = std::filesystem;

constexpr int kMostFiles = 16;  // that name each other

bool has(const Json& document, std::string_view keys) {
  const auto is_there = [&](std::string_view key) { return document.find(key) != nullptr; };
  return !first_name(keys, is_there).empty();
}

// --- documents

// LLaMA-Factory has names that nobody else has.
Tool tool_of(const Json& document) {
  if (has(document, "actor_rollout_ref")) return Tool::verl;
  if (has(document, "distributed_type|compute_environment")) return Tool::accelerate;
  if (has(document, "base_model|sequence_len")) return Tool::axolotl;
  if (has(document, "finetuning_type|cutoff_len|template|dataset_dir|stage")) {
    return Tool::llama_factory;
  }
  return Tool::trainer;
}

constexpr const char* kExpected =
    "arguments of transformers' Trainer, TRL, LLaMA-Factory, axolotl, ms-swift, OpenRLHF or verl, "
    "accelerate's configuration, or a script that starts one of them";

// Nobody's settings: which option takes the file, where one does.
void refuse_other_documents(const Json& document, const std::string& file) {
  Phrase hint = option_that_takes(document, file);
  if (hint.empty() && has(document, "hidden_size|architectures")) {
    hint = phrase("this is a model's config.json: --model {}", file);
  }
  const bool known =
      has(document,
          "model_name_or_path|base_model|per_device_train_batch_size|distributed_type|"
          "compute_environment|output_dir|finetuning_type|micro_batch_size|actor_rollout_ref");
  if (document.is_object() && known && hint.empty()) return;
  throw InputError({file, "", kExpected, described(document), hint});
}

// Starts no training whose settings it says. A kit that `fit -o` wrote has them in its scenario.
[[noreturn]] void refuse_script(const std::string& file) {
  std::error_code none;
  Phrase hint =
      "a program that has its settings in itself: say them as flags, and --ds-config FILE";
  for (const char* beside : {"scenario.json", "kit/scenario.json"}) {
    const fs::path scenario = fs::path(file).parent_path() / beside;
    if (!fs::exists(scenario, none)) continue;
    hint = phrase("what this kit starts: --scenario {}", scenario.string());
    break;
  }
  throw InputError({file, "", kExpected, "no command with the settings of a training", hint});
}

// accelerate's own section as the ds_config that its plugin makes of it (accelerate/utils/
// dataclasses.py:DeepSpeedPlugin.__post_init__).
Json ds_config_of(const Json& section) {
  const auto text = [&](const char* key) {
    const Json* found = section.find(key);
    return found == nullptr || found->is_null() ? std::string("none") : text_of(*found);
  };
  const Json* stage = section.find("zero_stage");
  Json zero = Json::object({{"stage", stage != nullptr ? count_of(*stage) : std::int64_t{2}}});
  for (const char* part : {"optimizer", "param"}) {
    const std::string device = text((std::string("offload_") + part + "_device").c_str());
    if (device == "none") continue;
    Json offload = Json::object({{"device", device}});
    const std::string path = text((std::string("offload_") + part + "_nvme_path").c_str());
    if (path != "none") offload["nvme_path"] = path;
    zero[std::string("offload_") + part] = offload;
  }
  const Json* save = section.find("zero3_save_16bit_model");
  if (save != nullptr && save->is_boolean()) {
    zero["stage3_gather_16bit_weights_on_model_save"] = *save;
  }
  Json config = Json::object({{"train_batch_size", "auto"},
                              {"train_micro_batch_size_per_gpu", "auto"},
                              {"gradient_accumulation_steps", "auto"},
                              {"gradient_clipping", "auto"},
                              {"zero_optimization", zero},
                              {"fp16", Json::object({{"enabled", "auto"}})},
                              {"bf16", Json::object({{"enabled", "auto"}})}});
  if (const Json* clipping = section.find("gradient_clipping");
      clipping != nullptr && clipping->is_number()) {
    config["gradient_clipping"] = *clipping;
  }
  return config;
}

// Every key becomes a setting, those of its section for DeepSpeed apart.
void add_accelerate(const Json& document, const std::string& file, Part& part) {
  const auto add = [&](const std::string& name, const Json& value, const Json& at) {
    part.settings.push_back({name, value, file, at.line()});
  };
  for (const auto& [name, value] : document.members()) {
    const bool is_section = name == "deepspeed_config" && value.is_object();
    if (name == "num_machines" || name == "num_processes") {
      (name == "num_machines" ? part.processes.nodes : part.processes.all) = count_of(value);
      part.counted.push_back({name, value, file, value.line()});
    } else if (name == "distributed_type" && text_of(value) == "FSDP") {
      add("fsdp", Json("full_shard"), value);
    } else if (!is_section) {
      add(name, value, value);
    } else {
      const Json* path = value.find("deepspeed_config_file");
      const bool named = path != nullptr && path->is_string() && path->as_string() != "none";
      add("deepspeed", named ? *path : ds_config_of(value), named ? *path : value);
      for (const auto& [key, member] : value.members()) {
        if (key == "deepspeed_config_file") continue;
        const bool taken = !named && is_named_in(kOfDsConfig, key);
        if (key == "gradient_accumulation_steps" || !taken) {
          add(name + "." + key, member, member);
        }
      }
    }
  }
}

// The file of a tool has hundreds of keys at most, and what follows takes time by each.
void require_few_keys(const Json& document, const std::string& file) {
  if (document.members().size() <= kMostSettings) return;
  throw InputError({file,
                    "",
                    phrase("at most {} settings", kMostSettings),
                    std::to_string(document.members().size()),
                    ""});
}

// verl's sections as names with dots, as its command line has them.
void add_sections(const std::string& prefix,
                  const Json& section,
                  const std::string& file,
                  Part& part) {
  for (const auto& [name, value] : section.members()) {
    if (value.is_object() && !value.members().empty()) {
      add_sections(prefix + name + ".", value, file, part);
    } else {
      part.settings.push_back({prefix + name, value, file, value.line()});
    }
  }
}

Part part_of(const Json& document, const std::string& file) {
  Part part;
  part.tool = tool_of(document);
  if (part.tool == Tool::accelerate) {
    add_accelerate(document, file, part);
    return part;
  }
  if (part.tool == Tool::verl) {
    add_sections("", document, file, part);
    take_ray_options(part);
    return part;
  }
  require_few_keys(document, file);
  for (const auto& [name, value] : document.members()) {
    std::string plain = name;
    std::replace(plain.begin(), plain.end(), '-', '_');
    part.settings.push_back({plain, value, file, value.line()});
  }
  return part;
}

// --- files

bool looks_like_json(std::string_view text) {
  const std::size_t at = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  return at != std::string_view::npos && text[at] == '{';
}

bool ends_with_any(const std::string& path, std::initializer_list<const char*> ends) {
  return std::any_of(
      ends.begin(), ends.end(), [&](const char* end) { return path.ends_with(end); });
}

class Collector {
 public:
  explicit Collector(std::map<ScenarioKey, std::string> flags) {
    meaning_.flags = std::move(flags);
  }
  Meaning read(const std::string& path) {
    const std::string file = path == "-" ? "/dev/stdin" : path;
    read_file(file, read_text_file(file, kMostText));
    // Whoever starts it says the engine, which what the training says is read by.
    for (const Part& launcher : launchers_) {
      for (const Setting& setting : launcher.settings) {
        if (setting.name != "deepspeed") continue;
        meaning_.scenario.set(ScenarioKey::engine, "deepspeed", {setting.file, setting.name});
      }
    }
    add_meaning(training_, meaning_);
    for (const Part& launcher : launchers_) add_meaning(launcher, meaning_);
    add_defaults(meaning_);
    return std::move(meaning_);
  }

 private:
  void read_file(const std::string& file, const std::string& text) {
    if (static_cast<int>(seen_.size()) >= kMostFiles || !seen_.insert(file).second) return;
    if (ends_with_any(file, {".yaml", ".yml"})) {
      read_document(parse_yaml(text, file), file);
    } else if (ends_with_any(file, {".json"}) || looks_like_json(text)) {
      read_document(parse_json(text, file).root, file);
    } else {
      read_shell(text, file);
    }
  }

  void read_document(const Json& document, const std::string& file) {
    refuse_other_documents(document, file);
    Part part = part_of(document, file);
    if (part.tool == Tool::accelerate) return launchers_.push_back(std::move(part));
    const bool trl = !training_.settings.empty() && training_.settings.front().name == "trl";
    if (training_.tool == Tool::trainer && !trl) training_.tool = part.tool;
    training_.settings.insert(training_.settings.end(), part.settings.begin(), part.settings.end());
    training_.counted.insert(training_.counted.end(), part.counted.begin(), part.counted.end());
    if (training_.processes.per_node == 0) training_.processes.per_node = part.processes.per_node;
    if (training_.processes.nodes == 0) training_.processes.nodes = part.processes.nodes;
  }

  void read_shell(const std::string& text, const std::string& file) {
    std::vector<Part> parts = read_launches(text, file);
    if (parts.empty()) {
      // A document under another name.
      if (reads_yaml() && text.find(": ") != std::string::npos) {
        Json document;
        try {
          document = parse_yaml(text, file);
        } catch (const InputError&) {
          document = Json();
        }
        if (document.is_object()) return read_document(document, file);
      }
      refuse_script(file);
    }
    const Part& first = parts.front();
    for (const Phrase& line : first.unread) meaning_.unknown.push_back({"", 0, line, ""});
    for (std::size_t i = 1; i < parts.size(); ++i) {
      const Setting& other =
          parts[i].settings.empty() ? parts[i].files.front() : parts[i].settings.front();
      meaning_.unknown.push_back(
          {other.file, other.line, "another training that this script starts", ""});
    }
    // What the command line says counts over the files that it names.
    training_ = accelerate_stage(first);
    for (const Setting& named : first.files) {
      const std::string path = beside(named, file);
      read_file(path, read_text_file(path, kMostText));
    }
  }

  // `accelerate launch --use_deepspeed --zero_stage 3` makes a ds_config of its own.
  static Part accelerate_stage(Part part) {
    Json section = Json::object();
    int line = 0;
    std::string file;
    for (const Setting& setting : part.settings) {
      if (!setting.name.starts_with("accelerate.")) continue;
      const std::string name = setting.name.substr(std::string("accelerate.").size());
      section[name] = setting.value;
      if (name == "zero_stage") line = setting.line;
      file = setting.file;
    }
    if (line > 0) {
      std::erase_if(part.settings, [](const Setting& setting) {
        constexpr std::size_t kPrefix = std::string_view("accelerate.").size();
        return setting.name.starts_with("accelerate.") &&
               setting.name != "accelerate.gradient_accumulation_steps" &&
               is_named_in(kOfDsConfig, std::string_view(setting.name).substr(kPrefix));
      });
    }
    if (line > 0) part.settings.push_back({"deepspeed", ds_config_of(section), file, line});
    return part;
  }

  static std::string beside(const Setting& named, const std::string& file) {
    const std::string path = text_of(named.value);
    std::error_code none;
    const fs::path near = fs::path(file).parent_path() / path;
    return !fs::exists(path, none) && fs::exists(near, none) ? near.string() : path;
  }

  Meaning meaning_;
  Part training_;                // of the command and of the files that it names: one training
  std::vector<Part> launchers_;  // accelerate's files
  std::set<std::string> seen_;
};

std::string place(const ReadLine& line) {
  return line.line > 0 ? line.file + ":" + std::to_string(line.line) : line.file;
}

// Names alone: memory and time of a step are the same whatever they say.
void add_unused(const std::vector<ReadLine>& lines, Phrase& text) {
  std::string names;
  std::set<std::string> known;
  for (const ReadLine& line : lines) {
    const std::string& said = line.said.english();
    const std::string name = said.substr(0, said.find(':'));
    if (known.insert(name).second) names += (names.empty() ? "" : ", ") + name;
  }
  if (names.empty()) return;
  text += phrase("not used, because memory and time of a step do not depend on it: {}\n",
                 printable(names));
}

}  // namespace

Meaning read_from(const std::string& path, std::map<ScenarioKey, std::string> flags) {
  Meaning meaning = Collector(std::move(flags)).read(path);
  const std::string cluster = cluster_of(meaning.processes);
  if (!cluster.empty() && !meaning.processes.gpu.empty()) {
    meaning.scenario.set(ScenarioKey::cluster, cluster, {path, "GPUs"});
  }
  return meaning;
}

void assume_engine(Meaning& meaning) {
  if (!runs_ddp(meaning)) return;
  meaning.scenario.set(ScenarioKey::engine, "ddp", {meaning.training.file, ""});
  if (meaning.says_ddp) return;
  meaning.assumed.emplace_back("engine ddp: neither DeepSpeed nor FSDP is switched on");
}

Phrase describe(const Meaning& meaning) {
  Phrase text;
  for (const ReadLine& line : meaning.read) {
    text += line.taken.empty()
                ? phrase("{}: {}\n", printable(place(line)), printable_values(line.said))
                : phrase("{}: {} -> {}\n",
                         printable(place(line)),
                         printable_values(line.said),
                         printable_values(line.taken));
  }
  const std::string cluster = cluster_of(meaning.processes);
  if (!cluster.empty()) {
    text += meaning.processes.gpu.empty()
                ? phrase("it starts {0} GPUs and does not say which: CLUSTER {0}xGPU\n", cluster)
                : phrase("it starts {} GPUs\n", cluster);
  }
  for (const Phrase& sentence : meaning.assumed) {
    text += phrase("assumed: {}\n", printable_values(sentence));
  }
  for (const ReadLine& line : meaning.passed_over) {
    text += phrase("not used: {}: {}, because {} counts\n",
                   printable(place(line)),
                   printable_values(line.said),
                   printable_values(line.taken));
  }
  for (const ReadLine& line : meaning.unknown) {
    const Phrase where = printable(place(line));
    text += phrase("not known: {}\n",
                   line.file.empty() ? printable_values(line.said)
                                     : phrase("{}: {}", where, printable_values(line.said)));
  }
  add_unused(meaning.unused, text);
  return text;
}

}  // namespace zeroplan::foreign
