// What `run` and `verify` train, as a fingerprint: the model, the data, the optimizer, the plan and
// ds_config, and what every rank must do alike. What may differ between ranks of one job is not in
// it: paths, the machine, its memory, who writes a trace.
//
//   model.*        what is computed: type, shape, names and shapes of the parameters
//   data.*         where rows come from, what a file holds, the seed
//   optimizer.*    AdamW's numbers, defaults included
//   workload.*     sequence length, micro-batch, precision ...
//   ds_config.*    every key that is set, by its pointer
//   run.*          release, device, steps, what it starts from, when checkpoints are written
#pragma once

#include "cli/embedded_plan.hpp"
#include "runtime/train/fingerprint.hpp"

namespace zeroplan::cli {

// Precondition: `setup.curve` is its curve_of(). Throws InputError where --weights cannot be read.
runtime::Fingerprint fingerprint_of(const EmbeddedRun& run,
                                    const Arguments& arguments,
                                    const runtime::TrainingSetup& setup,
                                    const runtime::TrainingOptions& options);

// What decides about the losses of a run that goes on: model, data, optimizer, the batch as a
// whole, precision, clipping and the loss scaler's rules. Not the stage, the ranks or how the batch
// is split: these may change between one part of a run and the next. Throws InputError where --data
// cannot be read.
runtime::Fingerprint curve_of(const EmbeddedRun& run,
                              const Arguments& arguments,
                              const runtime::TrainingSetup& setup);

}  // namespace zeroplan::cli
