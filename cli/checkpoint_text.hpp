// What simulate says of checkpoints.
#pragma once

#include <string>

#include "base/phrase.hpp"
#include "cli/arguments.hpp"
#include "model/predict/checkpoint.hpp"

namespace zeroplan::cli {

// --checkpoint-bandwidth. Throws InputError.
CheckpointOptions checkpoint_options_of(const Arguments& arguments);

// Bytes on disk, seconds and host memory, and how a run goes on with another number of GPUs: three
// lines in English.
Phrase checkpoint_text(const CheckpointPrediction& checkpoint);

}  // namespace zeroplan::cli
