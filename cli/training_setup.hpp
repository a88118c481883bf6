// What `run` and `verify` train with: the plan, the flags and the ds_config as the runtime takes
// them.
#pragma once

#include <memory>
#include <ostream>

#include "cli/embedded_plan.hpp"
#include "runtime/data/tokens.hpp"
#include "runtime/train/trainer.hpp"

namespace zeroplan::cli {

// --device-memory: what each rank's device has; infinite where nobody says.
Bytes device_memory(const Arguments& arguments);

// Where rows come from: --data, or random tokens of --seed. Throws InputError for what cannot be
// read.
std::unique_ptr<runtime::TokenSource> data_of(const Plan& plan, const Arguments& arguments);

runtime::SwapSetup swap_of(const Plan& plan);

// With --weights or --resume the values come from there. Throws InputError where these cannot be
// read or are of another run (checkpoint.hpp). `graph` must outlive the setup.
runtime::TrainingSetup setup_of(const EmbeddedRun& run,
                                const Arguments& arguments,
                                const ModelGraph& graph);

// Losses go to `log`.
runtime::TrainingOptions options_of(const EmbeddedRun& run,
                                    const Arguments& arguments,
                                    std::ostream& log);

}  // namespace zeroplan::cli
