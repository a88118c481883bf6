// Settings of FSDP, several in files of other tools, as zeroplan has them: a ds_config with
// a stage (docs/contract.md section 1).
#pragma once

#include <optional>

#include "foreign/said_elsewhere.hpp"

namespace zeroplan::foreign {

class ShardingWords {
 public:
  // "full_shard auto_wrap offload": TrainingArguments.fsdp. Whether it is switched on.
  bool read_words(const Setting& setting);
  // fsdp_config: of accelerate, the Trainer, axolotl. fsdp_version within is the caller's.
  void read_section(const Setting& setting);
  // Behind the last setting of a part.
  void finish(Meaning& meaning) const;

 private:
  void read_strategy(const Json& value);

  std::optional<Setting> said_;
  std::optional<int> stage_;
  bool offload_ = false;
  bool hybrid_ = false;
};

// Groups of FSDP are the GPUs of one node, whose number is known when all is read.
void finish_hybrid(Meaning& meaning);

}  // namespace zeroplan::foreign
