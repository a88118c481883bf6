// The commands that start a training: which script or tool, with which arguments, on how many GPUs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "foreign/settings.hpp"

namespace zeroplan::foreign {

// Reads a script or a line. A part for each command that starts a training, in the order of the
// file; empty where there is none. Known: deepspeed, torchrun, python -m torch.distributed.run,
// accelerate launch, python, llamafactory-cli, axolotl, trl, with or without srun and sbatch
// lines.
std::vector<Part> read_launches(std::string_view text, const std::string& file);

}  // namespace zeroplan::foreign
