// What a run is besides its scenario, as rules ask for it: who starts it, and what it does.
#pragma once

#include "base/enum_names.hpp"

namespace zeroplan {

enum class Launcher { torchrun, deepspeed, accelerate, mpirun, srun };
inline constexpr EnumNames<Launcher, 5> kLauncherNames{
    {"torchrun", "deepspeed", "accelerate", "mpirun", "srun"}};

enum class RunTask { train, evaluate, generate };
inline constexpr EnumNames<RunTask, 3> kRunTaskNames{{"train", "evaluate", "generate"}};

}  // namespace zeroplan
