#include "cli/flags.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/diagnostic.hpp"
#include "base/written_names.hpp"
#include "cli/ds_config_flags.hpp"
#include "cli/foreign_flags.hpp"
#include "cli/tokenized_dataset.hpp"
#include "foreign/from_file.hpp"
#include "foreign/processes.hpp"
#include "model/hardware/known_hardware.hpp"
#include "model/knobs/knobs.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/plan/spellings.hpp"

namespace zeroplan::cli {
namespace {

std::string value_name(const ScenarioKeyInfo& key) {
  switch (key.type) {
    case ScenarioType::integer:
    case ScenarioType::tokens:
      return "N";
    case ScenarioType::boolean:
      return "true|false";
    case ScenarioType::choice:
      return std::string(key.choices);
    case ScenarioType::text:
    case ScenarioType::text_or_object:
      return "VALUE";
    case ScenarioType::objects:
      return "ROLE[=MODEL][,HOW]...";
  }
  return "VALUE";
}

std::string_view group_of(const ScenarioKeyInfo& key) {
  if (key.pointer.starts_with("/workload/")) return "Workload";
  if (key.pointer.starts_with("/software/")) return "Software";
  return "Model and cluster";
}

// Does the command look for a ds_config.json?
bool searches(const CommandInfo& command) {
  constexpr std::array<std::string_view, 4> kSearches = {"fit", "tune", "report", "plot"};
  return std::find(kSearches.begin(), kSearches.end(), command.name) != kSearches.end();
}

// What the words of one command say, by long flag.
class WordReader {
 public:
  WordReader(const CommandInfo& command, const std::vector<std::string>& words)
      : command_(command), flags_(flags_of(command)), words_(words) {}

  void read() {
    bool flags_over = false;
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (!flags_over && word == "--") {
        flags_over = true;
      } else if (!flags_over && looks_like_flag(word)) {
        read_flag(word);
      } else {
        positionals.push_back(word);
      }
    }
  }

  const std::vector<Flag>& flags() const { return flags_; }

  std::vector<std::string> positionals;
  std::map<std::string_view, std::string> values;  // by long flag
  std::vector<DsConfigFlag> ds_config;
  Json adapters = Json::object();  // what flags say of them, by the keys of --method
  std::string adapters_said_as;    // the last of these flags

 private:
  // "-1" is a number and "-" a name.
  static bool looks_like_flag(const std::string& word) {
    return word.size() > 1 && word[0] == '-' &&
           std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
  }

  const Flag* find(std::string_view name) const {
    for (const Flag& flag : flags_) {
      if (flag.name == name || (!flag.short_name.empty() && flag.short_name == name)) return &flag;
    }
    return nullptr;
  }

  // --micro_batch_size is --micro-batch-size.
  const Flag* find_as_typed(std::string name) const {
    if (const Flag* flag = find(name)) return flag;
    std::replace(name.begin(), name.end(), '_', '-');
    return find(name);
  }

  [[noreturn]] void unknown(const std::string& name) const {
    std::vector<std::string_view> names;
    for (const Flag& flag : flags_) {
      names.push_back(flag.name);
      if (flag.short_name.starts_with("--")) names.push_back(flag.short_name);
    }
    const std::string ours = ours_for(name);
    Phrase hint = ours.empty() ? did_you_mean(name, names) : phrase("say it with {}", ours);
    if (hint.empty() && searches(command_) && knob_of_flag(name)) hint = fixed_in_search(name);
    throw InputError({kCommandLine,
                      name,
                      phrase("a flag of zeroplan {}", command_.name),
                      in_quotes(name),
                      hint});
  }

  // The flag of this command that says what a foreign one says; empty: there is none.
  std::string ours_for(const std::string& name) const {
    const std::string ours = our_flag_for(name);
    return find(ours.substr(0, ours.find(' '))) != nullptr ? ours : "";
  }

  Phrase fixed_in_search(const std::string& name) const {
    const std::string pointer(knob_row(*knob_of_flag(name)).pointer.substr(1));
    const std::string fix = "--fix " + pointer + "=VALUE";
    if (command_.name == "tune") return phrase("say it with {}", fix);
    return phrase("zeroplan tune {} searches with it, zeroplan simulate takes it as it is", fix);
  }

  // A key of ds_config.json, where the command takes one: fit takes the stage alone.
  std::optional<Knob> knob_of(const std::string& name) const {
    const bool takes = find("--ds-config") != nullptr;
    if (!takes || !ours_for(name).empty()) return std::nullopt;
    const std::optional<Knob> knob = knob_of_flag(name);
    const bool stage_of_fit = command_.name == "fit" && knob == Knob::zero_stage;
    return stage_of_fit || !searches(command_) ? knob : std::nullopt;
  }

  // --lora-rank and the others: a part of --method.
  static std::string_view adapter_key_of(const std::string& name) {
    struct Row {
      std::string_view names;
      std::string_view key;
    };
    constexpr std::array kRows = {
        Row{"lorarank|lorar", "rank"},
        Row{"loradropout", "dropout"},
        Row{"loratarget|loratargets|loratargetmodules|targetmodules", "targets"}};
    const std::string word = folded(name, "-_");
    for (const Row& row : kRows) {
      const auto same = [&](std::string_view one) { return one == word; };
      if (!first_name(row.names, same).empty()) return row.key;
    }
    return "";
  }

  // "16", "0.05", "q_proj,v_proj", "all-linear".
  void read_adapter(std::string_view key,
                    const std::string& name,
                    std::optional<std::string> value) {
    if (!value && at_ < words_.size()) value = words_[at_++];
    const Phrase expected = key == "targets" ? "all-linear, or names of layers: q_proj,v_proj"
                            : key == "rank"  ? "a whole number"
                                             : "a number from 0, below 1";
    if (!value) throw InputError({kCommandLine, name, expected, "nothing", ""});
    Json read;
    if (key == "targets") {
      read = Json::array();
      for (const std::string& target : parts_of(*value, ',')) read.push_back(target);
      if (read.items().size() == 1)
        read = read.items()[0].as_string().starts_with("all") ? Json("all-linear") : read;
    } else {
      double number = 0.0;
      const auto [stop, error] =
          std::from_chars(value->data(), value->data() + value->size(), number);
      if (error != std::errc() || stop != value->data() + value->size()) {
        throw InputError({kCommandLine, name, expected, in_quotes(*value), ""});
      }
      read = number == std::floor(number) ? Json(static_cast<std::int64_t>(number)) : Json(number);
    }
    if (adapters.find(key) != nullptr) {
      throw InputError({kCommandLine, name, "one value", "two", ""});
    }
    adapters[key] = read;
    adapters_said_as = name;
  }

  void read_knob(Knob knob, const std::string& name, std::optional<std::string> value) {
    const bool boolean = knob_row(knob).type == KnobType::boolean;
    const bool more = at_ < words_.size();
    if (!value && boolean && (!more || !parse_switch(words_[at_]))) value = "true";
    if (!value && !more) {
      throw InputError({kCommandLine, name, "a value of the key of ds_config.json", "nothing", ""});
    }
    if (!value) value = words_[at_++];
    for (const DsConfigFlag& other : ds_config) {
      if (other.knob == knob) throw InputError({kCommandLine, name, "one value", "two", ""});
    }
    ds_config.push_back({name, knob, ds_config_value(knob, name, *value)});
  }

  void read_flag(const std::string& word) {
    const bool one_letter = word[1] != '-';
    std::size_t end = word.find('=');
    if (one_letter && word.size() > 2 && end != 2) end = 2;  // -oDIR
    const std::string name = word.substr(0, end);
    const Flag* flag = find_as_typed(name);
    std::optional<std::string> value;
    if (end < word.size()) value = word.substr(word[end] == '=' ? end + 1 : end);
    if (flag == nullptr && command_.takes_scenario && !adapter_key_of(name).empty()) {
      return read_adapter(adapter_key_of(name), name, std::move(value));
    }
    if (flag == nullptr) {
      const std::optional<Knob> knob = one_letter ? std::nullopt : knob_of(name);
      if (!knob) unknown(one_letter ? word : name);
      read_knob(*knob, name, std::move(value));
      return;
    }
    if (flag->value.empty() && value) fail(*flag, "no value", in_quotes(*value));
    if (!flag->value.empty() && !value) value = next_value(*flag);
    // A variable of a script that holds nothing is no name, and no way to leave the flag out. Keys
    // of the scenario say themselves what they take.
    const bool own = flag->key == nullptr && flag->cluster_part == nullptr;
    if (own && !flag->value.empty() && value->empty() && !may_be_left_out(*flag)) {
      fail(*flag, phrase("a value, {}", flag->value), "an empty text");
    }
    const auto [at, is_new] = values.emplace(flag->name, value.value_or(""));
    if (is_new || flag->value.empty()) return;
    if (!repeats(*flag)) fail(*flag, "one value", "two");
    at->second += '\n' + *value;
  }

  // What --compare-versions takes, whose value may be left out: a model or a cluster that follows
  // it has no release in front.
  static bool is_release_list(const std::string& word) {
    const std::size_t slash = word.find('/');
    const bool release = word.find_first_not_of("0123456789.") == slash;
    return word == "all" || (release && slash > 0 && word.find('/', slash + 1) < word.size());
  }

  static bool may_be_left_out(const Flag& flag) { return flag.value.starts_with('['); }

  // "KEY=VALUE ...": may be said several times; its values are kept apart by line breaks.
  static bool repeats(const Flag& flag) { return flag.value.ends_with("..."); }

  std::string next_value(const Flag& flag) {
    const bool boolean = flag.key != nullptr && flag.key->type == ScenarioType::boolean;
    const bool more = at_ < words_.size();
    if (boolean && (!more || !parse_switch(words_[at_]))) return "true";
    if (may_be_left_out(flag) && (!more || !is_release_list(words_[at_]))) return "";
    if (!more) fail(flag, phrase("a value, {}", flag.value), "nothing");
    if (looks_like_flag(words_[at_]) && find(words_[at_].substr(0, words_[at_].find('=')))) {
      fail(flag, phrase("a value, {}", flag.value), phrase("the flag {}", words_[at_]));
    }
    return words_[at_++];
  }

  [[noreturn]] void fail(const Flag& flag, const Phrase& expected, const Phrase& got) {
    throw InputError({kCommandLine, std::string(flag.name), expected, got, ""});
  }

  const CommandInfo& command_;
  const std::vector<Flag> flags_;
  const std::vector<std::string>& words_;
  std::size_t at_ = 0;
};

// MODEL and CLUSTER as positionals are the scenario's keys.
bool is_scenario_key(const CommandInfo& command, const Positional& positional) {
  return command.takes_scenario && (positional.name == "MODEL" || positional.name == "CLUSTER");
}

void check_positionals(const CommandInfo& command, const Arguments& arguments) {
  const std::vector<Positional> wanted = positionals_of(command);
  const std::size_t got = arguments.positionals.size();
  const Phrase help = phrase("see zeroplan {} --help", command.name);
  const bool many = !wanted.empty() && wanted.back().many;
  if (got > wanted.size() && !many) {
    std::string before(command.name);
    for (const Positional& positional : wanted) before += " " + std::string(positional.name);
    throw InputError({kCommandLine,
                      "",
                      phrase("nothing behind {}", before),
                      in_quotes(arguments.positionals[wanted.size()]),
                      help});
  }
  for (std::size_t i = 0; i < std::min(got, wanted.size()); ++i) {
    if (wanted[i].many || !arguments.positionals[i].empty()) continue;  // of another program
    throw InputError(
        {kCommandLine, std::string(wanted[i].name), "an argument", "an empty text", help});
  }
  for (std::size_t i = got; i < wanted.size(); ++i) {
    if (!wanted[i].required || is_scenario_key(command, wanted[i])) continue;  // resolve() asks
    throw InputError({kCommandLine, std::string(wanted[i].name), "an argument", "nothing", help});
  }
}

void take_positionals(const CommandInfo& command, Arguments& arguments) {
  const std::vector<Positional> wanted = positionals_of(command);
  for (std::size_t i = 0; i < std::min(wanted.size(), arguments.positionals.size()); ++i) {
    if (!is_scenario_key(command, wanted[i])) continue;  // the command's own
    std::string name(wanted[i].name);
    // `fit --from train.yaml 8xH100`: the file names the model; `fit 8xH100 --model 7B`: a flag.
    const bool has_model = arguments.from.find(ScenarioKey::model) != nullptr ||
                           (arguments.flags.find(ScenarioKey::model) != nullptr &&
                            arguments.flags.find(ScenarioKey::cluster) == nullptr);
    const bool only_cluster = name == "MODEL" && arguments.positionals.size() == 1 &&
                              wanted.size() > 1 && wanted[1].name == "CLUSTER" && has_model;
    if (only_cluster) name = "CLUSTER";
    const ScenarioKey key = name == "MODEL" ? ScenarioKey::model : ScenarioKey::cluster;
    if (arguments.flags.find(key) != nullptr) {
      throw InputError({kCommandLine,
                        std::string(info(key).flag),
                        "one value",
                        phrase("two: {} and the flag's", in_quotes(arguments.positionals[i])),
                        ""});
    }
    arguments.flags.set(
        key, parse_flag(info(key), arguments.positionals[i], name), {kCommandLine, name});
  }
}

Language language_of(const std::optional<std::string>& said) {
  if (!said) return language_of_locale();
  if (const auto language = find_language(*said)) return *language;
  throw InputError({kCommandLine, "--lang", "en or zh", in_quotes(*said), ""});
}

// Scenario and cluster flags; all wrong values are reported together.
void take_scenario_flags(const WordReader& reader, Arguments& arguments) {
  std::vector<Diagnostic> problems;
  for (const Flag& flag : reader.flags()) {
    const auto said = reader.values.find(flag.name);
    if (said == reader.values.end()) continue;
    try {
      if (flag.key != nullptr) {
        const std::string name(flag.name);
        arguments.flags.set(
            flag.key->key, parse_flag(*flag.key, said->second, name), {kCommandLine, name});
      } else if (flag.cluster_part != nullptr) {
        arguments.cluster_changes.emplace_back(
            flag.cluster_part, parse_cluster_flag(*flag.cluster_part, said->second));
      }
    } catch (const InputError& error) {
      problems.insert(problems.end(), error.diagnostics().begin(), error.diagnostics().end());
    }
  }
  if (!problems.empty()) throw InputError(problems);
}

// --lora-rank 16 beside --method, or what --from says of it; LoRA where nobody says a method.
void take_adapters(const WordReader& reader, Arguments& arguments) {
  if (reader.adapters.members().empty()) return;
  const ExplicitValue* said = arguments.flags.find(ScenarioKey::method);
  if (said == nullptr) said = arguments.from.find(ScenarioKey::method);
  const Origin origin{kCommandLine, reader.adapters_said_as};
  std::string method = "lora";
  Json settings = Json::object();
  if (said != nullptr && said->value.is_string()) method = said->value.as_string();
  if (said != nullptr && said->value.members().size() == 1) {
    method = said->value.members()[0].first;
    settings = said->value.members()[0].second;
  }
  if (method == "full") {
    throw InputError({kCommandLine, reader.adapters_said_as, "--method lora or qlora", "full", ""});
  }
  for (const auto& [key, value] : reader.adapters.members()) settings[key] = value;
  arguments.flags.set(ScenarioKey::method, Json::object({{method, settings}}), origin);
}

// --dataset FILE with --tokenizer, --epochs, --padding: over what --from says of the samples.
void take_dataset(const std::optional<std::string>& tokenizer,
                  const std::optional<std::string>& epochs,
                  const std::optional<std::string>& padding,
                  Arguments& arguments) {
  const ExplicitValue* said = arguments.flags.find(ScenarioKey::dataset);
  const bool is_file = said != nullptr && said->value.is_string();
  if (!is_file && tokenizer) {
    throw InputError(
        {kCommandLine, "--tokenizer", "--dataset FILE.jsonl beside it", "nothing", ""});
  }
  if (!is_file && !epochs && !padding) return;
  Json dataset = said != nullptr && !is_file ? said->value : Json::object();
  if (const ExplicitValue* from = arguments.from.find(ScenarioKey::dataset);
      from != nullptr && (said == nullptr || is_file)) {
    dataset = from->value;
  }
  if (is_file) {
    const std::string file = said->value.as_string();
    if (!tokenizer) {
      throw InputError(
          {kCommandLine,
           "--tokenizer",
           "the folder of the tokenizer that the samples are counted by",
           "nothing",
           phrase("--dataset {} --tokenizer DIR; --lengths FILE takes lengths", file)});
    }
    const Json counted = tokenized_dataset(file, *tokenizer);
    for (const auto& [key, value] : counted.members()) dataset[key] = value;
    arguments.data = file;
    arguments.tokenizer = *tokenizer;
  }
  if (epochs) {
    double number = 0.0;
    const auto [stop, error] =
        std::from_chars(epochs->data(), epochs->data() + epochs->size(), number);
    if (error != std::errc() || stop != epochs->data() + epochs->size() || !(number > 0.0)) {
      throw InputError({kCommandLine, "--epochs", "a number above 0", in_quotes(*epochs), ""});
    }
    dataset["epochs"] = number;
  }
  if (padding) dataset["padding"] = *padding;
  arguments.flags.set(ScenarioKey::dataset, dataset, {kCommandLine, "--dataset"});
}

// What --from read, and what of it a file for the same tool takes over.
void take_meaning(const foreign::Meaning& meaning, const std::string& path, Arguments& arguments) {
  arguments.from = meaning.scenario;
  arguments.from_said = foreign::describe(meaning);
  arguments.from_file = path;
  // The tools whose files are written, too.
  const bool written =
      meaning.tool != foreign::Tool::accelerate && meaning.tool != foreign::Tool::swift;
  arguments.from_tool = written ? name(foreign::kToolNames, meaning.tool) : "";
  for (const foreign::ReadLine& line : meaning.unknown) {
    if (line.file.empty()) arguments.from_unread.push_back(line.said);
  }
  for (const foreign::Setting& setting : meaning.kept) {
    arguments.from_kept.push_back({setting.name, setting.value});
    if (setting.words.empty()) continue;
    Json& words = arguments.from_kept.back().value = Json::array();
    for (const std::string& word : setting.words) words.push_back(word);
  }
}

}  // namespace

std::vector<Flag> flags_of(const CommandInfo& command) {
  std::vector<Flag> flags;
  for (const OptionInfo& option : command.options) {
    flags.push_back(
        {option.flag, option.short_flag, std::string(option.value), option.help, "Flags"});
  }
  flags.push_back({"--json", "", "", "print one JSON document", "Flags"});
  flags.push_back(
      {"--lang", "", "en|zh", "language of the messages; else that of the locale", "Flags"});
  flags.push_back({"--help", "-h", "", "print this help", "Flags"});
  if (!command.takes_scenario) return flags;
  flags.push_back({"--scenario",
                   "",
                   "FILE",
                   "a scenario document, or the folder of a kit; flags override it",
                   "Flags"});
  flags.push_back(
      {"--from",
       "",
       "FILE",
       "a training set up elsewhere: YAML of LLaMA-Factory, axolotl, verl or accelerate, the "
       "Trainer's arguments, a job script, a command; flags override it",
       "Flags"});
  flags.push_back(
      {"--tokenizer",
       "",
       "DIR",
       "counts the tokens of --dataset FILE.jsonl: steps, hours, padding and cost follow",
       "Flags"});
  flags.push_back({"--epochs", "", "N", "how often the samples of --dataset are seen", "Flags"});
  flags.push_back(
      {"--padding", "", "longest|max|packed", "of micro-batches; max_length is max", "Flags"});
  for (const std::string_view group : {"Model and cluster", "Workload", "Software"}) {
    for (const ScenarioKeyInfo& key : kScenarioKeys) {
      if (group_of(key) != group) continue;
      flags.push_back({key.flag, key.short_flag, value_name(key), key.help, group, &key});
      if (key.key == ScenarioKey::ds_config && !searches(command)) {
        flags.back().help =
            "path to a ds_config.json; its keys are flags, too: --stage 3 --offload-optimizer cpu";
      }
      if (key.key != ScenarioKey::cluster) continue;
      for (const ClusterFlagInfo& part : cluster_flags()) {
        flags.push_back({part.flag, "", std::string(part.value), part.help, group, nullptr, &part});
      }
    }
  }
  return flags;
}

Arguments parse_words(const CommandInfo& command, const std::vector<std::string>& words) {
  WordReader reader(command, words);
  reader.read();
  const auto said = [&](std::string_view flag) -> std::optional<std::string> {
    const auto found = reader.values.find(flag);
    if (found == reader.values.end()) return std::nullopt;
    return found->second;
  };
  Arguments arguments;
  arguments.positionals = reader.positionals;
  arguments.ds_config = reader.ds_config;
  arguments.json = said("--json").has_value();
  arguments.language = language_of(said("--lang"));
  arguments.scenario_file = said("--scenario");
  for (const OptionInfo& option : command.options) {
    if (const auto value = said(option.flag)) {
      arguments.options[std::string(option.flag.substr(2))] = *value;
    }
  }
  foreign::Processes started;
  if (const auto path = said("--from")) {
    std::map<ScenarioKey, std::string> flags;
    for (const Flag& flag : reader.flags()) {
      const auto value = said(flag.name);
      if (flag.key != nullptr && value) flags[flag.key->key] = *value;
    }
    foreign::Meaning meaning = foreign::read_from(*path, std::move(flags));
    const bool other_engine = said("--engine") || said("--ds-config") || said("--scenario") ||
                              !arguments.ds_config.empty();
    const bool one_configuration = command.name == "simulate" || command.name == "scenario";
    if (one_configuration && !other_engine) foreign::assume_engine(meaning);
    take_meaning(meaning, *path, arguments);
    started = meaning.processes;
    const std::int64_t memory = started.host_memory;
    if (memory > 0) reader.values.emplace("--host-memory", std::to_string(memory));
  }
  check_positionals(command, arguments);
  take_scenario_flags(reader, arguments);
  take_positionals(command, arguments);
  const ExplicitValue* cluster = arguments.flags.find(ScenarioKey::cluster);
  if (const auto whole = foreign::cluster_with(started, cluster)) {
    arguments.flags.set(ScenarioKey::cluster, *whole, Origin(cluster->origin));
  }
  take_adapters(reader, arguments);
  take_dataset(said("--tokenizer"), said("--epochs"), said("--padding"), arguments);
  return arguments;
}

}  // namespace zeroplan::cli
