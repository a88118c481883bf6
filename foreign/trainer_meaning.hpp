// TRL's trainers of preferences and rewards: `trl dpo …`, its example scripts dpo.py, kto.py,
// grpo.py, ppo.py and gkd.py, and their arguments; LLaMA-Factory's `stage: dpo` and `stage: kto`;
// axolotl's `rl: dpo`, `ipo`, `kto` and `grpo`, with TRL's arguments in its section `trl`.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {

class TrainerMeaning {
 public:
  explicit TrainerMeaning(const Part& part);

  // Whether the setting is one of the trainer that runs.
  bool read(const Setting& setting);

  // `trainer` of a scenario (docs/contract.md section 1); null where none of them runs.
  Json trainer() const;
  // Prompt and completion together; null where grpo's are not said.
  Json sequence_length() const;
  // PPO's other models (`models` of a scenario) and its policy are null where they are not said.
  Json models() const;
  Json policy() const { return said("sft_model_path"); }
  // GKD's; null where it is not said.
  Json teacher() const { return said("teacher_model_name_or_path"); }
  // The trainer, and the argument that tells where nothing names it; empty where something does.
  const std::string& kind() const { return kind_; }
  const std::string& named_by() const { return named_by_; }

 private:
  Json said(std::string_view name) const;

  Tool tool_;
  std::string kind_, named_by_;
  Json said_ = Json::object();  // by the argument's name
};

}  // namespace zeroplan::foreign
