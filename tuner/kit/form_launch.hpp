// How a plan starts under the launchers of the tools: the command of a file, a line for a shell, a
// job script.
#pragma once

#include <string>

#include "model/plan/plan.hpp"
#include "tuner/kit/form.hpp"

namespace zeroplan::tuner {

// The command that trains by the file. Of several hosts it is given on each, with NODE_RANK.
std::string start_line(const Plan& plan, Form form, const FormPlace& place);

// What stands below the head of a script: the launcher with trl.scripts.sft and its arguments.
std::string shell_body(const Plan& plan, const FormPlace& place);
std::string sbatch_directives(const Plan& plan);
std::string sbatch_body(const Plan& plan, const FormPlace& place);

}  // namespace zeroplan::tuner
