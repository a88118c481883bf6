// The line that starts a plan with a script of the user's own: launcher, ds_config.json and the
// arguments that the Trainer takes from the command line. `-o DIR` writes a whole kit instead.
#pragma once

#include <string>

#include "model/plan/plan.hpp"

namespace zeroplan::cli {

// "deepspeed --num_gpus 8 train.py --deepspeed ds_config.json --per_device_train_batch_size 4 ..."
std::string launch_line(const Plan& plan);

}  // namespace zeroplan::cli
