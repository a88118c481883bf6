// Flags that people know from the Trainer, LLaMA-Factory, torchrun and their like, and what says
// the same here: --per_device_train_batch_size is --mbs.
#pragma once

#include <string>
#include <string_view>

namespace zeroplan::cli {

// "say it with --mbs N"; empty for a flag nobody knows. `flag` as it was typed, with its hyphens.
std::string our_flag_for(std::string_view flag);

}  // namespace zeroplan::cli
