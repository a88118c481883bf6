#include "cli/from/loop_words.hpp"

#include "model/plan/scenario_reader.hpp"
#include "model/written_names.hpp"

namespace zeroplan::from {

const Setting** LoopWords::place_of(Role role) {
  switch (role) {
    case Role::save_strategy:
      return &save_.strategy;
    case Role::save_steps:
      return &save_.steps;
    case Role::eval_strategy:
      return &evaluate_.strategy;
    case Role::eval_steps:
      return &evaluate_.steps;
    case Role::logging_strategy:
      return &log_.strategy;
    case Role::logging_steps:
      return &log_.steps;
    default:
      return nullptr;
  }
}

bool LoopWords::read(Role role, const Setting& setting) {
  const Setting** place = place_of(role);
  if (place == nullptr) return false;
  // The first counts, as everywhere.
  if (*place == nullptr) *place = &setting;
  return true;
}

std::string LoopWords::Words::steps_or(const std::string& otherwise) const {
  return steps == nullptr ? otherwise : text_of(steps->value);
}

// `unsaid`: the strategy where none is said; `steps`: their number.
void LoopWords::finish_one(const Words& words,
                           ScenarioKey key,
                           const std::string& unsaid,
                           const std::string& steps,
                           Meaning& meaning) {
  if (words.strategy == nullptr && words.steps == nullptr) return;
  if (meaning.scenario.find(key) != nullptr) return;
  const std::string strategy =
      words.strategy == nullptr ? unsaid : folded(text_of(words.strategy->value), "");
  const Setting& said = words.steps != nullptr && strategy == "steps" ? *words.steps
                        : words.strategy != nullptr                   ? *words.strategy
                                                                      : *words.steps;
  std::string value;
  if (strategy == "epoch") {
    value = "epoch";
  } else if (strategy == "steps") {
    value = words.steps_or(steps);
  } else {
    value = "no";  // "no", YAML's false, and "best", which saves after some evaluations
  }
  const Origin origin{said.file, "line " + std::to_string(said.line) + ": " + said.name};
  meaning.scenario.set(key, parse_flag(info(key), value, origin.pointer), origin);
  meaning.read.push_back({said.file,
                          said.line,
                          said.name + ": " + text_of(said.value),
                          std::string(info(key).flag) + " " + value});
}

void LoopWords::finish(Meaning& meaning) const {
  const std::string default_steps = "500";
  finish_one(save_, ScenarioKey::save_steps, "steps", default_steps, meaning);
  // training_args.py __post_init__: eval_steps is logging_steps where it is not said.
  finish_one(evaluate_, ScenarioKey::eval_steps, "no", log_.steps_or(default_steps), meaning);
  finish_one(log_, ScenarioKey::logging_steps, "steps", default_steps, meaning);
}

}  // namespace zeroplan::from
