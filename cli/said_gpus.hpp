// --device of the commands that can work on GPUs.
#pragma once

#include "cli/arguments.hpp"
#include "runtime/cuda/hardware.hpp"

namespace zeroplan::cli {

// cpu: none. cuda: those there are, InputError where the program has no CUDA or the driver finds
// none. Without the flag: those there are. `without` says what the command does with cpu, for the
// hint: "trains on CPU ranks".
runtime::cuda::Gpus said_gpus(const Arguments& arguments, const char* without);

}  // namespace zeroplan::cli
