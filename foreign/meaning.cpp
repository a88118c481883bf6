#include "foreign/meaning.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "foreign/adapters.hpp"
#include "foreign/loop_words.hpp"
#include "foreign/openrlhf.hpp"
#include "foreign/processes.hpp"
#include "foreign/setting_table.hpp"
#include "foreign/sharding.hpp"
#include "foreign/swift.hpp"
#include "foreign/taken.hpp"
#include "foreign/trainer_meaning.hpp"
#include "foreign/unplanned.hpp"
#include "foreign/verl.hpp"
#include "foreign/weight_words.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/software_sets.hpp"
#include "model/releases.hpp"
#include "model/workload.hpp"

namespace zeroplan::foreign {
namespace {

namespace fs = std::filesystem;

class MeaningReader {
 public:
  MeaningReader(const Part& part, Meaning& meaning) : part_(part), meaning_(meaning) {}

  void read() {
    for (const Setting& setting : part_.settings) file(setting, became(setting));
    const Setting* of_openrlhf = openrlhf();
    const bool of_verl = part_.tool == Tool::verl && !part_.settings.empty();
    if (of_openrlhf != nullptr) prepare_openrlhf(text_of(of_openrlhf->value), parts_);
    if (of_verl) prepare_verl(parts_);
    finish_adapters(part_.tool, parts_[ScenarioKey::method], meaning_);
    sharding_.finish(meaning_);
    loop_.finish(part_.tool, meaning_);
    loop_.finish_evaluation(part_.tool, meaning_);
    finish_dataset();
    weights_.finish(trl_);
    finish_later();
    finish_trainer();
    if (of_openrlhf != nullptr) finish_openrlhf(*of_openrlhf, parts_, meaning_);
    if (of_verl) finish_verl(part_.settings.front(), parts_, meaning_);
    finish_tool();
  }

 private:
  // The command of it that runs; null where another tool does.
  const Setting* openrlhf() const {
    const bool its = part_.tool == Tool::openrlhf && !part_.settings.empty();
    return its ? &part_.settings.front() : nullptr;
  }

  Became became(const Setting& setting) {
    if (setting.name == "openrlhf") refuse_other_command(setting);
    refuse_unplanned(setting, part_.tool);
    if (says_nothing(setting.value)) return {Use::unused};
    const auto [first, fresh] = first_.emplace(setting.name, &setting);
    const Setting& before = *first->second;
    if (before.file != setting.file && text_of(before.value) != text_of(setting.value)) {
      const Origin origin = origin_of(before);
      return {Use::passed_over, phrase("{}: {}", origin.file, origin.pointer).english()};
    }
    if (setting.name == "trl" && setting.value.is_object()) return trainer_section(setting);
    trl_ = trl_ || setting.name == "trl";
    const bool teaches = setting.name == "teacher_model_name_or_path";
    if (trainer_.read(setting)) return {Use::taken, teaches ? "--teacher" : "--trainer"};
    if (teaches) refuse(setting, "a teacher of another trainer than TRL's GKDTrainer");
    if (is_named_in("script|trl|swift|openrlhf", setting.name)) return {Use::taken};
    const SettingRow* row = row_of(setting);
    if (row == nullptr)
      return {changes_nothing(setting.name, part_.tool) ? Use::unused : Use::unknown};
    if (loop_.read(*row, setting)) return {Use::later};
    return apply(*row, setting);
  }

  // axolotl's section of TRL's arguments, for the trainer that `rl` names.
  Became trainer_section(const Setting& section) {
    Json rest = Json::object();
    for (const auto& [name, value] : section.value.members()) {
      if (!trainer_.read({name, value, section.file, section.line})) rest[name] = value;
    }
    file_rest(section, rest, "");
    return {Use::taken, "--trainer"};
  }

  // Null where it says nothing of the plan: also an argument of a trainer that does not run.
  const SettingRow* row_of(const Setting& setting) const {
    const SettingRow* row = find_row(setting.name, part_.tool);
    const bool plans =
        row != nullptr && row->rule != Rule::trainer && (row->key || row->rule != Rule::none);
    return plans ? row : nullptr;
  }

  void file(const Setting& setting, const Became& became) {
    if (became.use == Use::later) return later_.push_back(setting);
    file_setting(setting, became, part_.tool, meaning_);
  }

  // What was known when all was read, as a strategy and its steps, and was not listed then.
  void finish_later() {
    for (const Setting& setting : later_) {
      const ReadLine line = line_of(setting, "");
      const bool listed =
          std::any_of(meaning_.read.begin(), meaning_.read.end(), [&](const ReadLine& read) {
            return read.file == line.file && read.line == line.line && read.said == line.said;
          });
      if (!listed) meaning_.read.push_back(line);
    }
  }

  // The members of a section that nobody of `used` is, as settings of their own.
  void file_rest(const Setting& section, const Json& value, std::string_view used) {
    for (const auto& [name, member] : value.members()) {
      std::string_view plain = name;
      if (plain.starts_with("fsdp_")) plain.remove_prefix(5);
      if (is_named_in(used, plain)) continue;
      const int line = member.line() > 0 ? member.line() : section.line;
      const Setting one{section.name + "." + name, member, section.file, line};
      file(one, {changes_nothing(one.name, part_.tool) ? Use::unused : Use::unknown});
    }
  }

  // By the row alone, or by its rule.
  Became apply(const SettingRow& row, const Setting& setting) {
    const Json& value = setting.value;
    switch (row.rule) {
      case Rule::path:
        return set(*row.key, path_beside(setting), setting);
      case Rule::accumulation:
        return accumulation(setting);
      case Rule::optimizer:
        return optimizer(setting);
      case Rule::checkpointing:
        return checkpointing(setting);
      case Rule::activation_offloading:
        return activation_offloading(setting);
      case Rule::section:
        return section(setting);
      case Rule::ds_config:
        return ds_config(setting);
      case Rule::fsdp:
        return fsdp(setting);
      case Rule::fsdp_section:
        return fsdp_section(setting);
      case Rule::ddp:
        meaning_.says_ddp = text_of(value) == "MULTI_GPU";
        return meaning_.says_ddp
                   ? Became{Use::taken, std::string(info(ScenarioKey::engine).flag) + " ddp"}
                   : Became{Use::taken};
      case Rule::half:
      case Rule::dtype:
      case Rule::pure_bf16:
        return weights_.read(row, setting);
      case Rule::device_map:
        return device_map(setting);
      case Rule::vision:
        return vision(setting);
      case Rule::image_pixels: {  // larger ones are made smaller
        const auto side =
            static_cast<std::int64_t>(std::sqrt(static_cast<double>(count_of(value))));
        if (side == 0) return {Use::taken};
        return set(*row.key, fmt::format("{}x{}", side, side), setting);
      }
      case Rule::quant_method:
        require_bitsandbytes(setting);
        return plain(row, setting);
      default:
        return plain(row, setting);
    }
  }

  Became plain(const SettingRow& row, const Setting& setting) {
    const std::optional<Json> value = read_value(row, setting.value);
    if (row.part.empty()) return value ? set(*row.key, *value, setting) : Became{Use::taken};
    SaidParts& parts = parts_[*row.key];
    parts.last = setting;
    const bool counts = value && (!row.weak || parts.object.find(row.part) == nullptr);
    if (counts) parts.object[row.part] = *value;
    return {Use::taken, std::string(info(*row.key).flag)};
  }

  Became set(ScenarioKey key, const Json& value, const Setting& setting) {
    return take(key, value, setting, meaning_);
  }

  // accelerate's file and the arguments both say it to DeepSpeed: the Trainer stops where they
  // differ (transformers integrations/deepspeed.py fill_match).
  Became accumulation(const Setting& setting) {
    if (text_of(setting.value) == "auto") return {Use::taken};
    const ExplicitValue* before = meaning_.scenario.find(ScenarioKey::gradient_accumulation_steps);
    const bool of_launcher =
        part_.tool == Tool::accelerate || setting.name.starts_with("accelerate.");
    const bool differ = before != nullptr && text_of(before->value) != text_of(setting.value);
    const bool flag = meaning_.flags.contains(ScenarioKey::gradient_accumulation_steps);
    if (of_launcher && differ && !flag && count_of(setting.value) > 0) {
      throw InputError({setting.file,
                        origin_of(setting).pointer,
                        phrase("{}, as {}, {} says",
                               text_of(before->value),
                               before->origin.file,
                               before->origin.pointer),
                        text_of(setting.value),
                        "the Trainer stops where accelerate's file and the arguments differ: write "
                        "one number in both, or take it out of accelerate's file"});
    }
    return set(ScenarioKey::gradient_accumulation_steps, setting.value, setting);
  }

  // axolotl's words beside a switch: "offload", "unsloth" before, keep the checkpoints on the host.
  Became checkpointing(const Setting& setting) {
    const std::string text = text_of(setting.value);
    const bool offloads = is_named_in("offload|unsloth|offload_disk", text);
    if (offloads) file(setting, activation_offloading(setting));
    const bool full = offloads || is_on(setting.value);
    const std::string said = full ? "full" : is_switched_off(setting.value) ? "none" : text;
    return set(ScenarioKey::activation_checkpointing, said, setting);
  }

  Became activation_offloading(const Setting& setting) {
    if (is_named_in("disk|offload_disk", text_of(setting.value))) {
      refuse(setting, "activations on a disk");
    }
    return set(
        ScenarioKey::activation_offload, is_switched_off(setting.value) ? "none" : "cpu", setting);
  }

  // {"use_reentrant": true}; {"gradient_accumulation_kwargs": {"sync_each_batch": true}}: what a
  // member says stands at the section's line.
  Became section(const Setting& setting) {
    Became became{Use::taken};
    read_members(setting, setting.name, section_of(setting), became);
    return became;
  }

  void read_members(const Setting& setting,
                    const std::string& path,
                    const Json& members,
                    Became& became) {
    for (const auto& [name, value] : members.members()) {
      const std::string member = path + "." + name;
      const SettingRow* row = find_row(member, part_.tool);
      if (row != nullptr) {
        Setting one = setting;
        one.value = value;
        became = apply(*row, one);
      } else if (value.is_object()) {
        read_members(setting, member, value, became);
      } else {
        file_rest(setting, Json::object({{name, value}}), "");
      }
    }
  }

  // A path is written for the folder where the training starts: the file's own or the one above it
  // (of a kit), or the one where zeroplan runs.
  Json path_beside(const Setting& setting) const {
    const std::string path = text_of(setting.value);
    std::error_code none;
    if (fs::exists(path, none)) return path;
    const fs::path folder = fs::path(setting.file).parent_path();
    for (const fs::path& beside : {folder / path, folder / ".." / path}) {
      if (fs::exists(beside, none)) return beside.lexically_normal().string();
    }
    return path;
  }

  Became ds_config(const Setting& setting) {
    if (setting.value.is_boolean() || text_of(setting.value) == "true") return {Use::taken};
    // The script's own argument parser (deepspeed.add_config_arguments): a loop of its own.
    native_ = native_ || setting.name == "deepspeed_config";
    engine("deepspeed", setting);
    if (setting.value.is_object()) return set(ScenarioKey::ds_config, setting.value, setting);
    if (part_.tool == Tool::swift) {
      const Json own = ds_config_of_swift(text_of(setting.value));
      if (!own.is_null()) return set(ScenarioKey::ds_config, own, setting);
    }
    return set(ScenarioKey::ds_config, path_beside(setting), setting);
  }

  void engine(const char* name, const Setting& setting) {
    if (meaning_.scenario.find(ScenarioKey::engine) != nullptr) return;
    meaning_.scenario.set(ScenarioKey::engine, name, {setting.file, setting.name});
  }

  Became fsdp(const Setting& setting) {
    if (!sharding_.read_words(setting)) return {Use::taken};
    engine("fsdp", setting);
    shards_by_arguments_ = setting.name == "fsdp" &&
                           (part_.tool == Tool::trainer || part_.tool == Tool::llama_factory);
    return {Use::taken, "--engine fsdp"};
  }

  // On a command line it is JSON text, or the name of a file.
  Json section_of(const Setting& setting) const {
    if (!setting.value.is_string()) return setting.value;
    const std::string& text = setting.value.as_string();
    if (text.starts_with('{')) return parse_json(text, setting.file).root;
    const std::string path = path_beside(setting).as_string();
    return parse_json(read_text_file(path, kMostText), path).root;
  }

  // Members have the prefix fsdp_ in some tools' files.
  Became fsdp_section(const Setting& said) {
    Setting setting = said;
    setting.value = section_of(said);
    for (const auto& [name, value] : setting.value.members()) {
      const Setting one{
          said.name + "." + name, value, said.file, value.line() > 0 ? value.line() : said.line};
      const std::string plain = name.starts_with("fsdp_") ? name.substr(5) : name;
      const bool prefixed = plain == "version" || plain == "cpu_ram_efficient_loading";
      const bool alone = plain == "activation_checkpointing";
      if (!prefixed && !alone) continue;
      file(one, apply(*find_row(prefixed ? "fsdp_" + plain : plain, part_.tool), one));
    }
    sharding_.read_section(setting);
    file_rest(setting,
              setting.value,
              "version|activation_checkpointing|offload_params|cpu_offload|sharding_strategy|"
              "reshard_after_forward|cpu_ram_efficient_loading");
    // The Trainer heeds the section where --fsdp is on, axolotl by itself.
    if (part_.tool == Tool::axolotl && !setting.value.members().empty()) engine("fsdp", said);
    return {Use::taken, "--engine fsdp"};
  }

  // How samples are padded or packed, and how often they are seen.
  void finish_dataset() {
    const SaidParts& said = parts_[ScenarioKey::dataset];
    const bool before = meaning_.scenario.find(ScenarioKey::dataset) != nullptr;
    if (said.object.members().empty() || before) return;
    meaning_.scenario.set(ScenarioKey::dataset, said.object, {said.last->file, said.last->name});
  }

  // How AdamW goes over the tensors, where the name says it: bitsandbytes' as torch's fused one.
  Became optimizer(const Setting& setting) {
    const std::string said = text_of(setting.value);
    const bool plain = said == "adamw_torch";
    const bool paged_fp32 = said == "paged_adamw" || said == "paged_adamw_32bit";
    if (plain || paged_fp32 || said == "adamw_torch_fused") {
      meaning_.scenario.set(ScenarioKey::optimizer_implementation,
                            plain ? "foreach" : "fused",
                            {setting.file, setting.name});
    }
    if (paged_fp32 || said == "paged_adamw_8bit") {
      meaning_.assumed.push_back(
          phrase("{}: its states stay on the GPU; the driver moves pages of them to the host where "
                 "the GPU is full",
                 said));
    }
    return set(ScenarioKey::optimizer, said, setting);
  }

  // {"": "cpu"}, on a command line as JSON text; "auto" and numbers are GPUs.
  Became device_map(const Setting& setting) {
    const std::string text = text_of(setting.value);
    const bool cpu = text.find("cpu") != std::string::npos;
    return cpu ? set(ScenarioKey::load_device, "cpu", setting) : Became{Use::taken};
  }

  // Kept for freeze_parts (defaults.cpp); adapters stand on the text alone.
  Became vision(const Setting& setting) {
    const bool language = setting.name.find("language") != std::string::npos ||
                          setting.name.find("llm") != std::string::npos;
    if (language && is_on(setting.value)) {
      throw InputError({setting.file,
                        origin_of(setting).pointer,
                        "a training that is planned",
                        "a language model that is frozen beside its tower",
                        "--freeze names what does not train, of full fine-tuning"});
    }
    if (language) return {Use::taken};
    const bool joins = setting.name.find("projector") != std::string::npos ||
                       setting.name.find("aligner") != std::string::npos;
    (joins ? meaning_.freezes_projector : meaning_.freezes_tower) = is_on(setting.value);
    return {Use::taken, std::string(info(ScenarioKey::freeze).flag)};
  }

  // Of swift and LLaMA-Factory: who makes the bits of quant_bits.
  void require_bitsandbytes(const Setting& setting) const {
    const std::string who = text_of(setting.value);
    if (who == "bnb" || who == "bitsandbytes") return;
    throw InputError({setting.file,
                      origin_of(setting).pointer,
                      "bnb: weights in four bits of bitsandbytes are planned",
                      in_quotes(who),
                      "--method qlora plans them as bitsandbytes stores them"});
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
    add(ScenarioKey::teacher, trainer_.teacher());
    add(ScenarioKey::model, trainer_.policy());
    if (trainer_.named_by().empty()) return;
    meaning_.assumed.push_back(
        phrase("trainer {}: {} is an argument of its, and nothing says which trainer runs",
               trainer_.kind(),
               trainer_.named_by()));
  }

  bool says_a_training() const {
    return std::any_of(part_.settings.begin(), part_.settings.end(), [&](const Setting& setting) {
      return row_of(setting) != nullptr && !says_nothing(setting.value);
    });
  }

  // The release is that of the flags beside the file, else of the file, else the newest set's.
  Version release_of_transformers() const {
    const auto flag = meaning_.flags.find(ScenarioKey::transformers_version);
    const ExplicitValue* said = meaning_.scenario.find(ScenarioKey::transformers_version);
    std::optional<Version> version;
    if (flag != meaning_.flags.end()) {
      version = parse_version(flag->second);
    } else if (said != nullptr && said->value.is_string()) {
      version = parse_version(said->value.as_string());
    }
    return version.value_or(software_sets().front().transformers);
  }

  // Whose defaults count for what nobody says.
  void finish_tool() {
    meaning_.native = meaning_.native || native_;
    if (!meaning_.training.name.empty() || !says_a_training()) return;
    if (part_.tool == Tool::accelerate) return;
    meaning_.training = part_.settings.front();
    meaning_.tool = part_.tool;
    // Source: transformers training_args.py, fsdp_config.get("cpu_ram_efficient_loading", "false");
    // accelerate's own default, in its file and on its command line, is the other one.
    const bool searches_others = meaning_.flags.contains(ScenarioKey::engine) ||
                                 meaning_.flags.contains(ScenarioKey::ds_config);
    if (!shards_by_arguments_ || searches_others) return;
    meaning_.assume(ScenarioKey::loading,
                    name(kLoadingNames, Loading::every_rank),
                    "every rank loads the whole model: cpu_ram_efficient_loading false is the "
                    "Trainer's default");
    const Version transformers = release_of_transformers();
    if (!acts(ReleaseRule::trainer_takes_fully_shard, transformers)) return;
    meaning_.assume(ScenarioKey::fsdp_version,
                    std::int64_t{2},
                    phrase("FSDP2: what the Trainer of transformers {} takes where fsdp_config "
                           "names no version",
                           to_string(transformers)));
  }

  const Part& part_;
  Meaning& meaning_;
  ShardingWords sharding_;
  LoopWords loop_;
  std::map<ScenarioKey, SaidParts> parts_;  // of keys that several settings say
  std::vector<Setting> later_;              // what they become is known when all is read
  bool trl_ = false;                        // TRL's own command
  TrainerMeaning trainer_{part_};
  WeightWords weights_{part_.tool, meaning_};
  std::map<std::string_view, const Setting*> first_;  // that says it, by the name
  bool native_ = false;
  bool shards_by_arguments_ = false;  // FSDP by those of the Trainer, and not by accelerate's
};

}  // namespace

void add_meaning(const Part& part, Meaning& meaning) {
  if (part.settings.size() > kMostSettings) {
    throw InputError({part.settings.front().file,
                      "",
                      phrase("at most {} settings", kMostSettings),
                      std::to_string(part.settings.size()),
                      ""});
  }
  if (!part.settings.empty()) MeaningReader(part, meaning).read();
  add_processes(part, meaning);
}

}  // namespace zeroplan::foreign
