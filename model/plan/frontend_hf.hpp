// The Hugging Face Trainer's rules for `auto` in a ds_config.json: the one file that knows them.
//
// Reading: fill_auto() gives every `auto` the value that the Trainer would write there. Writing the
// other way, explicit values back to `auto`, is for_trainer() of model/knobs/ds_config.hpp, from
// the same column of the knob table. Source: transformers 5.23,
// src/transformers/integrations/deepspeed.py HfTrainerDeepSpeedConfig.trainer_config_process and
// trainer_config_finalize; deepspeed runtime/config_utils.py DeepSpeedConfigModel.__init__ (drops
// "auto" in its sections).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/knobs/ds_config.hpp"
#include "model/workload.hpp"

namespace zeroplan {

// What the rules depend on.
struct TrainerArguments {
  bool runs = true;  // false: a loop of DeepSpeed's own, where sizes that say "auto" are dropped
  std::int64_t micro_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  std::int64_t data_parallel_ranks = 1;
  std::int64_t hidden_size =
      0;  // 0: the config has none, and the three size rules cannot be applied
  int stage = 0;
  Precision precision = Precision::bf16;
  std::int64_t total_steps = 0;  // optimizer steps of the job; 0: not known
  std::int64_t pipeline_stages = 1;
};

// Replaces every `auto`. Keys whose rule has no value (an `auto` that DeepSpeed drops) become
// unset. Returns the pointers of keys that stay without a value because hidden_size is 0 (the
// Trainer raises ValueError there).
std::vector<std::string> fill_auto(DsConfig& config, const TrainerArguments& arguments);

// Bucket and persistence sizes that say "auto" become the Trainer's numbers, for a file of ours
// that a loop hands to DeepSpeed as it is.
void fill_sizes(DsConfig& config, std::int64_t hidden_size);

}  // namespace zeroplan
