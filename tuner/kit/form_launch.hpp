// How a plan starts under the launchers of the tools: the command of a file, a line for a shell, a
// job script.
#pragma once

#include <string>

#include "foreign/form.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::tuner {

// The command that trains by the file. Of several hosts it is given on each, with NODE_RANK.
std::string start_line(const Plan& plan, foreign::Form form, const foreign::FormPlace& place);

// What stands below the head of a script: the launcher with trl.scripts.sft and its arguments.
std::string shell_body(const Plan& plan, const foreign::FormPlace& place);
// Launcher and arguments of a command with names of its own. Precondition: is_own_command(form).
std::string own_command(const Plan& plan, foreign::Form form, const foreign::FormPlace& place);
std::string sbatch_directives(const Plan& plan);
std::string sbatch_body(const Plan& plan, const foreign::FormPlace& place);

}  // namespace zeroplan::tuner
