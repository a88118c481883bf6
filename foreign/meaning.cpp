#include "foreign/meaning.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/written_names.hpp"
#include "foreign/adapters.hpp"
#include "foreign/data_words.hpp"
#include "foreign/loop_words.hpp"
#include "foreign/setting_roles.hpp"
#include "foreign/sharding.hpp"
#include "foreign/swift.hpp"
#include "foreign/trainer_meaning.hpp"
#include "foreign/unplanned.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/scenario_values.hpp"

namespace zeroplan::foreign {
namespace {

namespace fs = std::filesystem;

// What became of a setting. Each ends in one list of Meaning, which is where it is filed: what is
// not used is listed by its name, whatever it is.
enum class Use { taken, passed_over, unused, unknown, later };
struct Became {
  Use use = Use::unknown;
  Phrase as = {};  // taken: the flag; passed over: what counts
};

class MeaningReader {
 public:
  MeaningReader(const Part& part, Meaning& meaning) : part_(part), meaning_(meaning) {}

  void read() {
    for (const Setting& setting : part_.settings) file(setting, became(setting));
    adapters_.finish(part_.tool, meaning_);
    sharding_.finish(meaning_);
    loop_.finish(part_.tool, meaning_);
    loop_.finish_evaluation(part_.tool, meaning_);
    data_.finish(meaning_);
    finish_precision();
    finish_weights();
    finish_later();
    finish_trainer();
    finish_tool();
  }

 private:
  Became became(const Setting& setting) {
    refuse_unplanned(setting, part_.tool);
    if (says_nothing(setting.value)) return {Use::unused};
    const auto [first, fresh] = first_.emplace(setting.name, &setting);
    const Setting& before = *first->second;
    if (before.file != setting.file && text_of(before.value) != text_of(setting.value)) {
      const Origin origin = origin_of(before);
      return {Use::passed_over, phrase("{}: {}", origin.file, origin.pointer).english()};
    }
    trl_ = trl_ || setting.name == "trl";
    const bool teaches = setting.name == "teacher_model_name_or_path";
    if (trainer_.read(setting)) return {Use::taken, teaches ? "--teacher" : "--trainer"};
    if (teaches) refuse(setting, "a teacher of another trainer than TRL's GKDTrainer");
    if (setting.name == "script" || setting.name == "trl" || setting.name == "swift") {
      return {Use::taken};
    }
    const std::optional<Role> role = role_of(setting.name, part_.tool);
    if (!role) return {changes_nothing(setting.name) ? Use::unused : Use::unknown};
    if (loop_.read(*role, setting)) return {Use::later};
    return apply(*role, setting);
  }

  void file(const Setting& setting, const Became& became) {
    const ReadLine line = line_of(setting, became.as);
    switch (became.use) {
      case Use::taken:
        meaning_.read.push_back(line);
        return;
      case Use::later:
        later_.push_back(setting);
        return;
      case Use::passed_over:
        meaning_.passed_over.push_back(line);
        return;
      case Use::unused:
        meaning_.unused.push_back(line);
        break;
      case Use::unknown:
        meaning_.unknown.push_back(line);
        break;
    }
    const bool of_launcher = setting.name.find('.') != std::string::npos;
    if (!says_nothing(setting.value) && !of_launcher && part_.tool != Tool::accelerate) {
      meaning_.kept.push_back(setting);
    }
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
      file(one, {changes_nothing(one.name) ? Use::unused : Use::unknown});
    }
  }

  ReadLine line_of(const Setting& setting, const Phrase& taken) const {
    return {setting.file, setting.line, setting.name + ": " + shown(setting.value), taken};
  }

  static std::string shown(const Json& value) {
    const std::string text = text_of(value);
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  // What was said before, in a part that counts over this one, stays.
  Became set(ScenarioKey key, const Json& value, const Setting& setting) {
    const Origin origin = origin_of(setting);
    if (const ExplicitValue* before = meaning_.scenario.find(key)) {
      if (text_of(before->value) == text_of(value)) {
        return {Use::taken, std::string(info(key).flag) + " " + text_of(value)};
      }
      return {Use::passed_over,
              phrase("{}: {}", before->origin.file, before->origin.pointer).english()};
    }
    const bool inline_value =
        value.is_object() || value.is_boolean() || value.is_array() || value.is_null();
    const Json checked =
        inline_value ? typed_value(key, value, origin) : checked_value(key, text_of(value), origin);
    meaning_.scenario.set(key, checked, origin);
    return {Use::taken, std::string(info(key).flag) + " " + text_of(checked)};
  }

  static Origin origin_of(const Setting& setting) {
    return {setting.file,
            setting.line > 0 ? "line " + std::to_string(setting.line) + ": " + setting.name
                             : setting.name};
  }

  // A value of YAML or JSON that is no text: what the scenario's own table takes.
  static Json typed_value(ScenarioKey key, const Json& value, const Origin& origin) {
    Diagnostic problem{origin.file, origin.pointer, "", "", ""};
    std::optional<Json> good = checked(info(key), value, problem);
    if (!good) throw InputError(problem);
    return *good;
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

  Became apply(Role role, const Setting& setting) {
    const Json& value = setting.value;
    switch (role) {
      case Role::model:
        return set(ScenarioKey::model, path_beside(setting), setting);
      case Role::sequence:
        return set(ScenarioKey::sequence_length, value, setting);
      case Role::micro_batch:
        return set(ScenarioKey::micro_batch_size, value, setting);
      case Role::accumulation:
        return accumulation(setting);
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
        return attention(is_on(value) ? "flash" : "", setting);
      case Role::sdpa:
        return attention(is_on(value) ? "sdpa" : "", setting);
      case Role::eager:
        return attention(is_on(value) ? "eager" : "", setting);
      case Role::checkpointing:
        return checkpointing(setting);
      case Role::activation_offloading:
        return activation_offloading(setting);
      case Role::loading:
        if (!is_switched_off(value)) return {Use::taken};
        return set(ScenarioKey::loading, "every-rank", setting);
      case Role::no_checkpointing:
        return set(ScenarioKey::activation_checkpointing, is_on(value) ? "none" : "full", setting);
      case Role::checkpointing_arguments:
        return checkpointing_arguments(setting);
      case Role::accelerator_arguments:
        return accelerator_arguments(setting);
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
        return meaning_.says_ddp
                   ? Became{Use::taken, std::string(info(ScenarioKey::engine).flag) + " ddp"}
                   : Became{Use::taken};
      case Role::dtype:
        return dtype(setting);
      case Role::pure_bf16:
        if (is_on(setting.value)) pure_bf16_ = &setting;
        return {Use::later};
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
      case Role::padding:
      case Role::packing:
      case Role::epochs:
        data_.read(role, setting);
        return {Use::taken, std::string(info(ScenarioKey::dataset).flag)};
      case Role::vision:
        return vision(setting);
      case Role::image_pixels: {  // larger ones are made smaller
        const auto side =
            static_cast<std::int64_t>(std::sqrt(static_cast<double>(count_of(setting.value))));
        if (side == 0) return {Use::taken};
        return set(ScenarioKey::image_size, fmt::format("{}x{}", side, side), setting);
      }
      case Role::quant_method:
        return quant_method(setting);
      default:
        return adapter(role, setting);
    }
  }

  Became attention(const std::string& name, const Setting& setting) {
    return name.empty() ? Became{Use::taken} : set(ScenarioKey::attention, name, setting);
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

  Became checkpointing_arguments(const Setting& setting) {
    const Json section = section_of(setting);
    file_rest(setting, section, "use_reentrant");
    const Json* said = section.find("use_reentrant");
    return said == nullptr ? Became{Use::taken}
                           : set(ScenarioKey::checkpoint_reentrant, is_on(*said), setting);
  }

  // {"gradient_accumulation_kwargs": {"sync_each_batch": true}}
  Became accelerator_arguments(const Setting& setting) {
    const Json section = section_of(setting);
    const Json* accumulation = section.find("gradient_accumulation_kwargs");
    const Json* said = accumulation == nullptr ? nullptr : accumulation->find("sync_each_batch");
    return said == nullptr ? Became{Use::taken}
                           : set(ScenarioKey::sync_each_batch, is_on(*said), setting);
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

  Became fsdp_arguments(const Setting& said) {
    Setting setting = said;
    setting.value = section_of(said);
    for (const auto& [name, value] : setting.value.members()) {
      const Setting one{
          said.name + "." + name, value, said.file, value.line() > 0 ? value.line() : said.line};
      if (name == "fsdp_version" || name == "version") {
        file(one, set(ScenarioKey::fsdp_version, value, one));
      } else if (name.ends_with("activation_checkpointing")) {
        file(one, apply(Role::checkpointing, one));
      } else if (name.ends_with("cpu_ram_efficient_loading")) {
        file(one, apply(Role::loading, one));
      }
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

  // Both off: 32 bits, and a ds_config that says otherwise is the Trainer's error.
  Became half(const char* name, const Setting& setting) {
    if (is_on(setting.value)) return set(ScenarioKey::precision, name, setting);
    (std::string_view(name) == "bf16" ? no_bf16_ : no_fp16_) = &setting;
    return {Use::taken};
  }

  void finish_precision() {
    const bool open = meaning_.scenario.find(ScenarioKey::precision) == nullptr;
    if (no_bf16_ != nullptr && no_fp16_ != nullptr && open) {
      file(*no_bf16_, set(ScenarioKey::precision, "fp32", *no_bf16_));
    }
  }

  // How torch.optim's AdamW goes over the tensors, where the name says it.
  Became optimizer(const Setting& setting) {
    const std::string said = text_of(setting.value);
    const bool plain = said == "adamw_torch";
    if (plain || said == "adamw_torch_fused") {
      meaning_.scenario.set(ScenarioKey::optimizer_implementation,
                            plain ? "foreach" : "fused",
                            {setting.file, setting.name});
    }
    const bool paged = said == "paged_adamw_8bit";
    if (paged) {
      meaning_.assumed.push_back(
          phrase("{}: its states stay on the GPU; the driver moves pages of them to the host where "
                 "the GPU is full",
                 said));
    }
    return set(ScenarioKey::optimizer, paged ? "adamw8bit" : said, setting);
  }

  Became adapter(Role role, const Setting& setting) {
    adapters_.read(role, setting);
    if (role == Role::bnb_arguments) {
      file_rest(setting, setting.value, "bnb_4bit_quant_type|bnb_4bit_use_double_quant");
    }
    return {Use::taken, "--method"};
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
      file(*pure_bf16_, set(ScenarioKey::weights_dtype, "pure-bf16", *pure_bf16_));
      meaning_.scenario.set(ScenarioKey::precision, "bf16", {pure_bf16_->file, pure_bf16_->name});
    } else if (dtype_ != nullptr) {
      read_dtype(*dtype_, casts, no_bf16_ != nullptr && no_fp16_ != nullptr);
    } else if (part_.tool == Tool::llama_factory && !casts && full) {
      meaning_.assume(ScenarioKey::weights_dtype,
                      "fp32",
                      "weights in fp32: LLaMA-Factory makes what it trains fp32");
    } else if (part_.tool == Tool::axolotl && !casts && !adapters && computes_in_bf16()) {
      meaning_.assume(ScenarioKey::weights_dtype,
                      "bf16",
                      "weights in bf16: axolotl loads them so where bf16 is on");
    } else if (trl_ && !casts && !adapters) {
      meaning_.assume(
          ScenarioKey::weights_dtype, "fp32", "weights in fp32: dtype float32 is TRL's default");
    }
  }

  bool computes_in_bf16() const {
    const ExplicitValue* precision = meaning_.scenario.find(ScenarioKey::precision);
    return precision != nullptr && precision->value == Json("bf16");
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
      file(setting, {Use::taken, casts ? Phrase("DeepSpeed casts to its own format") : Phrase("")});
      return;
    }
    const bool pure = alone && std::string_view(format) == "bf16";
    if (pure) meaning_.scenario.set(ScenarioKey::precision, "bf16", {setting.file, setting.name});
    file(setting, set(ScenarioKey::weights_dtype, pure ? "pure-bf16" : format, setting));
  }

  // {"": "cpu"}, on a command line as JSON text; "auto" and numbers are GPUs.
  Became device_map(const Setting& setting) {
    const std::string text = text_of(setting.value);
    const bool cpu = text.find("cpu") != std::string::npos;
    return cpu ? set(ScenarioKey::load_device, "cpu", setting) : Became{Use::taken};
  }

  // Of swift the format of the weights is that of the arithmetic, too.
  Became dtype(const Setting& setting) {
    const std::string said = text_of(setting.value);
    if (part_.tool == Tool::swift && said != "auto") {
      return set(ScenarioKey::precision, said, setting);
    }
    dtype_ = &setting;
    return {Use::later};
  }

  // The text model alone is planned: a tower that is frozen adds its weights, one that is trained
  // more than that.
  Became vision(const Setting& setting) {
    const bool language = setting.name.find("language") != std::string::npos ||
                          setting.name.find("llm") != std::string::npos;
    if (!language && meaning_.flags.contains(ScenarioKey::images)) {
      const bool joins = setting.name.find("projector") != std::string::npos ||
                         setting.name.find("aligner") != std::string::npos;
      (joins ? meaning_.freezes_projector : meaning_.freezes_tower) = is_on(setting.value);
      return {Use::taken, std::string(info(ScenarioKey::freeze).flag)};
    }
    if (is_on(setting.value) == language) {
      throw InputError({setting.file,
                        origin_of(setting).pointer,
                        "a training that is planned",
                        language ? "a language model that is frozen beside its tower"
                                 : "a vision tower that is trained",
                        "--images plans the tower, too, of full fine-tuning"});
    }
    const Phrase without =
        "the vision tower and what joins it are left out: the text model alone is planned";
    const std::vector<Phrase>& known = meaning_.assumed;
    if (std::find(known.begin(), known.end(), without) == known.end()) {
      meaning_.assumed.push_back(without);
    }
    return {Use::taken};
  }

  // Of swift and LLaMA-Factory: who makes the bits of quant_bits.
  Became quant_method(const Setting& setting) {
    const std::string who = text_of(setting.value);
    if (who != "bnb" && who != "bitsandbytes") {
      throw InputError({setting.file,
                        origin_of(setting).pointer,
                        "bnb: weights in four bits of bitsandbytes are planned",
                        in_quotes(who),
                        "--method qlora plans them as bitsandbytes stores them"});
    }
    adapters_.read(Role::quant_method, setting);
    return {Use::taken, "--method"};
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
      return role_of(setting.name, part_.tool) && !says_nothing(setting.value);
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
  DataWords data_;
  std::vector<Setting> later_;  // what they become is known when all is read
  const Setting* no_bf16_ = nullptr;
  const Setting* no_fp16_ = nullptr;
  const Setting* dtype_ = nullptr;
  const Setting* pure_bf16_ = nullptr;
  bool trl_ = false;  // TRL's own command
  TrainerMeaning trainer_{part_};
  std::map<std::string_view, const Setting*> first_;  // that says it, by the name
  bool native_ = false;
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
  const auto add = [](const std::vector<Setting>& settings, bool counts, auto& lines) {
    for (const Setting& one : settings) {
      const char* as = !counts                           ? ""
                       : one.name.starts_with("--mem")   ? "--host-memory"
                       : one.name == kThreads            ? "--omp-num-threads"
                       : one.name.starts_with("PYTORCH") ? "--expandable-segments"
                                                         : "CLUSTER";
      lines.push_back({one.file, one.line, one.name + ": " + text_of(one.value), as});
    }
  };
  add(part.counted, true, meaning.read);
  add(part.unused, false, meaning.unused);
  const bool one_host = part.processes.nodes == 1;
  if (one_host) add(part.network, false, meaning.unused);
  for (const Setting& one : part.network) {
    if (one_host) break;
    meaning.assumed.push_back(
        phrase("{}={}: between hosts the network is as fast as the cluster says, whatever NCCL is "
               "told to take (--network)",
               one.name,
               text_of(one.value)));
  }
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
  all.expandable_segments = all.expandable_segments || said.expandable_segments;
  if (all.host_memory.empty()) all.host_memory = said.host_memory;
}

void Meaning::assume(ScenarioKey key, Json value, const char* sentence) {
  if (scenario.find(key) != nullptr) return;
  scenario.set(key, std::move(value), {training.file, ""});
  if (sentence != nullptr) assumed.emplace_back(sentence);
}

namespace {

// The parts that LLaMA-Factory and swift freeze where nobody says otherwise. Beside adapters
// nothing is frozen that is not: these tools leave the layers of a frozen tower without any.
void freeze_parts(Meaning& meaning) {
  const ExplicitValue* method = meaning.scenario.find(ScenarioKey::method);
  const bool full = method != nullptr && method->value == Json("full");
  if (!meaning.flags.contains(ScenarioKey::images) || !full) return;
  const bool usual = meaning.tool == Tool::llama_factory || meaning.tool == Tool::swift;
  std::string names;
  if (meaning.freezes_tower.value_or(usual)) names = "vision";
  if (meaning.freezes_projector.value_or(usual))
    names += names.empty() ? "projector" : ",projector";
  if (names.empty()) return;
  const bool said = meaning.freezes_tower && meaning.freezes_projector;
  meaning.assume(
      ScenarioKey::freeze,
      names,
      said ? nullptr : "--freeze vision,projector: the tool's default, where nobody says it");
}

}  // namespace

void add_defaults(Meaning& meaning) {
  finish_hybrid(meaning);
  if (meaning.training.name.empty()) return;
  meaning.assume(ScenarioKey::frontend, meaning.native ? "native" : "hf-trainer", nullptr);
  const Processes& processes = meaning.processes;
  if (processes.threads > 0) {
    meaning.assume(ScenarioKey::omp_num_threads,
                   processes.threads,
                   processes.threads_launcher.empty() ? nullptr
                   : processes.threads_launcher == "torchrun"
                       ? "OMP_NUM_THREADS 1: torchrun's default for several processes"
                       : "OMP_NUM_THREADS 1: accelerate's default for several processes");
  }
  if (processes.expandable_segments)
    meaning.assume(ScenarioKey::expandable_segments, true, nullptr);
  if (meaning.native) return;  // batch and precision are the ds_config's
  const bool swift = meaning.tool == Tool::swift;
  freeze_parts(meaning);
  if (swift || meaning.tool == Tool::llama_factory) {
    meaning.assume(ScenarioKey::method,
                   Json::object({{"lora", Json::object({{"rank", 8}, {"targets", "all-linear"}})}}),
                   kLoraByDefault[swift ? 1 : 0]);
  }
  if (swift) return add_defaults_of_swift(meaning);
  if (meaning.tool != Tool::axolotl) {
    meaning.assume(ScenarioKey::micro_batch_size,
                   std::int64_t{8},
                   "per_device_train_batch_size 8: the Trainer's default");
  }
  if (meaning.tool == Tool::llama_factory) {
    meaning.assume(ScenarioKey::sequence_length,
                   std::int64_t{2048},
                   "cutoff_len 2048: LLaMA-Factory's default");
    meaning.assume(ScenarioKey::activation_checkpointing,
                   "full",
                   "gradient checkpointing: LLaMA-Factory's default");
    meaning.assume(
        ScenarioKey::checkpoint_reentrant, true, "use_reentrant_gc true: LLaMA-Factory's default");
  }
  meaning.assume(ScenarioKey::gradient_accumulation_steps,
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

}  // namespace zeroplan::foreign
