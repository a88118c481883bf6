#include "cli/from/loop_words.hpp"

#include "model/written_names.hpp"

namespace zeroplan::from {

bool LoopWords::is_its(Role role) {
  switch (role) {
    case Role::save_strategy:
    case Role::save_steps:
    case Role::eval_strategy:
    case Role::eval_steps:
    case Role::logging_strategy:
    case Role::logging_steps:
      return true;
    default:
      return false;
  }
}

void LoopWords::read(Role role, const Setting& setting) {
  const Setting** place = nullptr;
  switch (role) {
    case Role::save_strategy:
      place = &save_.strategy;
      break;
    case Role::save_steps:
      place = &save_.steps;
      break;
    case Role::eval_strategy:
      place = &evaluate_.strategy;
      break;
    case Role::eval_steps:
      place = &evaluate_.steps;
      break;
    case Role::logging_strategy:
      place = &log_.strategy;
      break;
    case Role::logging_steps:
      place = &log_.steps;
      break;
    default:
      return;
  }
  // The first counts, as everywhere.
  if (*place == nullptr) *place = &setting;
}

void LoopWords::finish_one(const Words& words,
                           ScenarioKey key,
                           const std::string& unsaid,
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
    value = words.steps == nullptr ? "500" : text_of(words.steps->value);
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
  finish_one(save_, ScenarioKey::save_steps, "steps", meaning);
  finish_one(evaluate_, ScenarioKey::eval_steps, "no", meaning);
  finish_one(log_, ScenarioKey::logging_steps, "steps", meaning);
}

}  // namespace zeroplan::from
