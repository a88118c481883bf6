// How often a file's training loop saves, evaluates and logs, and what it evaluates: the Trainer's
// strategies, steps and batches.
#pragma once

#include <map>
#include <string>

#include "foreign/said_elsewhere.hpp"
#include "foreign/setting_table.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {

class LoopWords {
 public:
  // False: the row says something else, or something else, too. Settings must outlive finish().
  bool read(const SettingRow& row, const Setting& setting);
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
  const Setting* said(Rule rule) const;  // null where nobody says it
  bool holds_out() const;
  bool evaluates(Tool tool, Meaning& meaning) const;
  std::string every(const Words& words, const std::string& unsaid, const std::string& steps) const;
  void finish_one(const Words& words,
                  ScenarioKey key,
                  const std::string& unsaid,
                  const std::string& steps,
                  Meaning& meaning) const;

  std::map<Rule, const Setting*> said_;
  const Setting* epochs_ = nullptr;
};

}  // namespace zeroplan::foreign
