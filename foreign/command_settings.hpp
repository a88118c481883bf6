// A plan as the arguments of a command with names of its own, OpenRLHF's or verl's: the user's own
// arguments in their order and spelling, with what the plan has in their place; what no plan has
// stays: data, rewards, rates.
// Sources: openrlhf/cli of 0.7 to 0.11.0; verl/trainer/config/_generated_ppo_trainer.yaml of
// January 2026.
#pragma once

#include <string>

#include "foreign/form.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::foreign {

// The module that Python runs, "openrlhf.cli.train_sft".
std::string module_of_command(const Plan& plan);
// Whether Ray starts its processes, by its own arguments; else DeepSpeed's launcher does.
bool starts_by_ray(const Plan& plan);

// The words behind the module, quoted for sh, with `separator` between arguments. Preconditions:
// is_own_command(form); the plan's trainer is of that code.
std::string command_words(const Plan& plan,
                          Form form,
                          const FormPlace& place,
                          const std::string& separator);

}  // namespace zeroplan::foreign
