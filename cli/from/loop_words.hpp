// How often a file's training loop saves, evaluates and logs, and what it evaluates: the Trainer's
// strategies, steps and batches.
#pragma once

#include <string>

#include "cli/from/said_elsewhere.hpp"
#include "cli/from/setting_roles.hpp"
#include "cli/from/settings.hpp"

namespace zeroplan::from {

class LoopWords {
 public:
  // False: the role says something else, or something else, too. Settings must outlive finish().
  bool read(Role role, const Setting& setting);
  // Sets save_steps, eval_steps and logging_steps where nobody said them before. A strategy counts
  // over a number: steps are those of `steps` alone, which is the default but for evaluation.
  void finish(Tool tool, Meaning& meaning) const;
  // Sets the evaluation, where one runs. Behind everything else that the part says.
  void finish_evaluation(Tool tool, Meaning& meaning) const;

 private:
  struct Words {
    const Setting* strategy = nullptr;
    const Setting* steps = nullptr;
    const Setting* per_epoch = nullptr;  // axolotl's count
    // What the Trainer takes where a strategy counts steps and nobody says how many.
    std::string steps_or(const std::string& otherwise) const;
  };
  const Setting** place_of(Role role);
  bool holds_out() const;
  bool evaluates(Tool tool, Meaning& meaning) const;
  std::string every(const Words& words, const std::string& unsaid, const std::string& steps) const;
  void finish_one(const Words& words,
                  ScenarioKey key,
                  const std::string& unsaid,
                  const std::string& steps,
                  Meaning& meaning) const;

  Words save_, evaluate_, log_;
  const Setting* epochs_ = nullptr;
  // Of the evaluation.
  const Setting* do_eval_ = nullptr;
  const Setting* held_out_ = nullptr;
  const Setting* batch_ = nullptr;
  const Setting* accumulation_ = nullptr;
};

}  // namespace zeroplan::from
