// TRL's trainers of preferences and rewards: `trl dpo …`, its example scripts dpo.py, kto.py,
// grpo.py and ppo.py, and their arguments; LLaMA-Factory's `stage: dpo` and `stage: kto`.
#pragma once

#include <string>

#include "base/json.hpp"
#include "cli/from/settings.hpp"

namespace zeroplan::from {

class TrainerMeaning {
 public:
  explicit TrainerMeaning(Tool tool) : tool_(tool) {}

  // Whether the setting is one of theirs; a name that other trainers have (beta) only counts
  // where one of these runs.
  bool read(const Setting& setting);

  // `trainer` of a scenario (docs/contract.md section 1); null where none of them runs.
  Json trainer() const;
  // Prompt and completion together; null where grpo's are not said.
  Json sequence_length() const;
  // Of ppo: `models` of a scenario, and the policy (sft_model_path); null where they are not said.
  Json models() const;
  const Json& policy() const { return policy_; }

 private:
  bool read_llama_factory(const Setting& setting);

  Tool tool_;
  std::string kind_;
  Json settings_ = Json::object();
  Json prompt_, completion_;
  Json reward_, policy_;
  bool vllm_ = false;
  bool without_reference_ = false;  // orpo, simpo
  std::string vllm_mode_;
};

}  // namespace zeroplan::from
