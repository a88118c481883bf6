// What `run` and `verify` share: the plan of the embedded runtime from flags, and its training.
#pragma once

#include "cli/arguments.hpp"
#include "model/plan/plan.hpp"
#include "runtime/train/trainer.hpp"

namespace zeroplan {

// The plan that runs: `engine: embedded`, on CPU ranks. --ranks says how many; without it as many
// as the cluster has, one where none is given. Throws InputError, for --device cuda too where the
// program was built without CUDA.
Plan embedded_plan(const Arguments& arguments);

// Trains it as --steps, --seed and --data say; the losses go to `log` as they come. Throws
// InputError; runtime::OutOfMemory and NonFiniteLoss are left to the caller.
runtime::TrainingReport run_embedded(const Plan& plan,
                                     const Arguments& arguments,
                                     Bytes predicted_peak,
                                     std::ostream& log);

// Ends a command whose training failed: the message, exit code 1.
int training_failed(const std::exception& error, const Arguments& arguments, Streams streams);

// The rank with the highest peak.
const runtime::RankReport& worst_rank(const runtime::TrainingReport& report);
Seconds step_seconds(const runtime::RankReport& rank);

}  // namespace zeroplan
