// What a run needs to be told beside ds_config.json, so that it is the plan: arguments of the
// Trainer, what the script sets itself, and the releases.
#pragma once

#include <string>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::tuner {

// Lines; none under the embedded engine:
//   With the Trainer: --deepspeed ds_config.json --per_device_train_batch_size 4 ...
//   In the script: from_pretrained(..., attn_implementation="sdpa"), sequences of 2048 tokens
//   Installed: deepspeed==0.19.6 torch==2.11.0 transformers==5.17.0
Phrase trainer_lines(const Plan& plan);

// "--deepspeed ds_config.json --per_device_train_batch_size 4 --bf16 ...", for transformers' own
// parser.
std::string trainer_arguments(const Plan& plan);

// What the script sets, where the Trainer has no argument: attention, adapters, checkpointing of a
// loop of one's own, fused loss, tiles.
std::string script_settings(const Plan& plan);

// "deepspeed==0.19.6 torch==2.11.0 ...", with accelerate and peft of the set that was tried.
std::string pinned_packages(const Plan& plan, const char* separator = " ");

}  // namespace zeroplan::tuner
