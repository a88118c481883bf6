#include "foreign/loop_words.hpp"

#include <cmath>

#include <fmt/format.h>

#include "base/written_names.hpp"
#include "foreign/yaml_scalar.hpp"
#include "model/plan/scenario_reader.hpp"

namespace zeroplan::foreign {
namespace {

// "no", YAML's false, 0, 0.0, an empty list.
bool is_none(const Setting& setting) {
  const std::string text = folded(text_of(setting.value), "");
  return text == "no" || text == "none" || text == "false" || text == "0" || text == "0.0" ||
         text == "[]";
}

// A number of samples; 0 for a share of them and for files.
std::int64_t samples_of(const Setting& setting) {
  const std::int64_t count = count_of(setting.value);
  const bool whole = !setting.value.is_number() ||
                     setting.value.as_number() == std::floor(setting.value.as_number());
  return whole && count > 1 ? count : 0;
}

double real_of(const Json& value) {
  const Json number = value.is_string() ? plain_scalar(value.as_string()) : value;
  return number.is_number() ? number.as_number() : 0.0;
}

}  // namespace

bool LoopWords::read(const SettingRow& row, const Setting& setting) {
  const bool own = row.rule >= Rule::save_strategy && row.rule <= Rule::logging_steps;
  // The first counts, as everywhere.
  if (own) said_.emplace(row.rule, &setting);
  if (row.is == "dataset.epochs" && epochs_ == nullptr) epochs_ = &setting;
  return own;
}

const Setting* LoopWords::said(Rule rule) const {
  const auto found = said_.find(rule);
  return found == said_.end() ? nullptr : found->second;
}

std::string LoopWords::Words::steps_or(const std::string& otherwise) const {
  return steps == nullptr ? otherwise : text_of(steps->value);
}

// `unsaid`: the strategy where none is said; `steps`: their number. A count an epoch is axolotl's,
// which makes a share of all steps of it (0.16 utils/config/__init__.py normalize_config).
std::string LoopWords::every(const Words& words,
                             const std::string& unsaid,
                             const std::string& steps) const {
  const std::int64_t an_epoch = words.per_epoch == nullptr ? 0 : count_of(words.per_epoch->value);
  if (an_epoch > 0) {
    const double epochs = epochs_ == nullptr ? 1.0 : real_of(epochs_->value);
    const double times = static_cast<double>(an_epoch) * epochs;
    return times > 1.0 ? fmt::format("{:.6g}", 1.0 / times) : "epoch";
  }
  const std::string strategy =
      words.strategy == nullptr ? unsaid : folded(text_of(words.strategy->value), "");
  if (strategy == "epoch") return "epoch";
  if (strategy == "steps") return words.steps_or(steps);
  return "no";  // "no", YAML's false, and "best", which saves after some evaluations
}

void LoopWords::finish_one(const Words& words,
                           ScenarioKey key,
                           const std::string& unsaid,
                           const std::string& steps,
                           Meaning& meaning) const {
  const Setting* said = words.per_epoch;
  if (said == nullptr) said = words.strategy;
  const bool counts = said == nullptr || folded(text_of(said->value), "") == "steps";
  if (words.per_epoch == nullptr && words.steps != nullptr && counts) said = words.steps;
  if (said == nullptr || meaning.scenario.find(key) != nullptr) return;
  const std::string value = every(words, unsaid, steps);
  const Origin origin{said->file, "line " + std::to_string(said->line) + ": " + said->name};
  meaning.scenario.set(key, parse_flag(info(key), value, origin.pointer), origin);
  meaning.read.push_back({said->file,
                          said->line,
                          said->name + ": " + text_of(said->value),
                          std::string(info(key).flag) + " " + value});
}

void LoopWords::finish(Tool tool, Meaning& meaning) const {
  const std::string default_steps = "500";
  const Words save{said(Rule::save_strategy), said(Rule::save_steps), said(Rule::saves_per_epoch)};
  const Words log{said(Rule::logging_strategy), said(Rule::logging_steps)};
  finish_one(save, ScenarioKey::save_steps, "steps", default_steps, meaning);
  // training_args.py __post_init__: eval_steps is logging_steps where it is not said. axolotl takes
  // eval_steps for the strategy (core/builders/base.py _configure_save_and_eval_strategy).
  Words evaluate{said(Rule::eval_strategy), said(Rule::eval_steps), said(Rule::evals_per_epoch)};
  if (!holds_out()) evaluate.per_epoch = nullptr;
  // swift evaluates as it saves (arguments/sft_args.py _init_eval_strategy).
  const bool as_saved = tool == Tool::swift && holds_out();
  if (as_saved && evaluate.strategy == nullptr) evaluate.strategy = save.strategy;
  if (as_saved && evaluate.steps == nullptr) evaluate.steps = save.steps;
  finish_one(evaluate,
             ScenarioKey::eval_steps,
             as_saved || (tool == Tool::axolotl && holds_out()) ? "steps" : "no",
             log.steps_or(default_steps),
             meaning);
  finish_one(log, ScenarioKey::logging_steps, "steps", default_steps, meaning);
}

bool LoopWords::holds_out() const {
  const Setting* samples = said(Rule::held_out);
  return samples != nullptr && !is_none(*samples);
}

// The Trainer evaluates by its strategy, its scripts at the end by do_eval. LLaMA-Factory and
// axolotl hold samples out; who does that means to evaluate, although neither does it for that
// alone (LLaMA-Factory 0.9.5 train/sft/workflow.py, axolotl 0.16 core/builders/base.py; axolotl's
// earlier builders did, after each epoch).
bool LoopWords::evaluates(Tool tool, Meaning& meaning) const {
  if ((tool == Tool::axolotl || tool == Tool::swift) && !holds_out()) return false;
  const Setting* const asked = said(Rule::do_eval);
  if (asked != nullptr && is_on(asked->value)) return true;
  const Setting* strategy = said(Rule::eval_strategy);
  if (tool == Tool::swift && strategy == nullptr) strategy = said(Rule::save_strategy);
  if (strategy != nullptr || tool == Tool::swift) return strategy == nullptr || !is_none(*strategy);
  const bool counts = said(Rule::eval_steps) != nullptr || said(Rule::evals_per_epoch) != nullptr;
  if (tool == Tool::axolotl && counts) return true;
  if (!holds_out() || tool == Tool::trainer) return false;
  meaning.assumed.push_back(
      phrase("{} is evaluated, as eval_strategy says it: --evaluation none plans without",
             said(Rule::held_out)->name));
  return true;
}

void LoopWords::finish_evaluation(Tool tool, Meaning& meaning) const {
  const auto note = [&](const Setting* setting, const Phrase& taken) {
    if (setting == nullptr) return;
    meaning.read.push_back(
        {setting->file, setting->line, setting->name + ": " + text_of(setting->value), taken});
  };
  const Setting* const do_eval = said(Rule::do_eval);
  const Setting* const held_out = said(Rule::held_out);
  const Setting* const batch = said(Rule::eval_batch);
  const Setting* const accumulation = said(Rule::eval_accumulation);
  const Setting* all[] = {do_eval, held_out, batch, accumulation};
  // The evaluated samples are no part of a plan; their batches and steps are, and are written from
  // it.
  for (const Setting* setting : {do_eval, held_out}) {
    const bool carried = setting != nullptr && tool != Tool::accelerate;
    if (carried) meaning.kept.push_back(*setting);
  }
  if (meaning.scenario.find(ScenarioKey::evaluation) != nullptr) return;
  if (!evaluates(tool, meaning)) {
    note(said(Rule::evals_per_epoch), "no evaluation");
    for (const Setting* setting : all) note(setting, "no evaluation");
    return;
  }
  Json settings = Json::object({});
  std::int64_t rows = batch != nullptr ? count_of(batch->value) : 0;
  const ExplicitValue* trained = meaning.scenario.find(ScenarioKey::micro_batch_size);
  if (rows == 0 && tool == Tool::axolotl && trained != nullptr && trained->value.is_number()) {
    rows = trained->value.as_integer();
    meaning.assumed.push_back(
        phrase("eval_batch_size {}: axolotl takes micro_batch_size where it is not said", rows));
  }
  if (rows == 0 && tool == Tool::swift) {
    rows = 1;
    meaning.assumed.emplace_back("per_device_eval_batch_size 1: swift's default");
  }
  if (rows == 0) {
    rows = 8;
    meaning.assumed.emplace_back(
        "evaluation in batches of 8: per_device_eval_batch_size is not said, and that is the "
        "Trainer's default");
  }
  settings["batch_size"] = rows;
  if (accumulation != nullptr && count_of(accumulation->value) > 0) {
    settings["accumulation_steps"] = count_of(accumulation->value);
  }
  if (held_out != nullptr && samples_of(*held_out) > 0) {
    settings["samples"] = samples_of(*held_out);
  }
  const Json evaluation = Json::object({{"loss", settings}});
  const Setting* first = batch;
  for (const Setting* other : {held_out,
                               do_eval,
                               said(Rule::evals_per_epoch),
                               said(Rule::eval_strategy),
                               said(Rule::eval_steps)}) {
    if (first == nullptr) first = other;
  }
  meaning.scenario.set(ScenarioKey::evaluation,
                       evaluation,
                       {first->file, "line " + std::to_string(first->line) + ": " + first->name});
  const Phrase taken = std::string(info(ScenarioKey::evaluation).flag) + " " + evaluation.dump();
  bool noted = false;
  for (const Setting* setting : all) {
    noted = noted || setting != nullptr;
    note(setting, taken);
  }
  if (!noted) note(first, taken);
}

}  // namespace zeroplan::foreign
