// A plan as settings of one tool, in the order in which people write them.
#pragma once

#include <string>

#include "foreign/form.hpp"
#include "foreign/form_text.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan::foreign {

// Precondition: form is llama_factory, axolotl, trl or trainer. trl is also what a shell line says.
FormSettings settings_of(const Plan& plan, Form form, const FormPlace& place);

// The plan as the rows name its parts: the workload of its scenario, without what has no effect.
Json parts_of(const Plan& plan, Form form, const FormPlace& place);
// "method.rank"; null where the plan has none.
const Json* part_at(const Json& parts, std::string_view path);

// TrainingArguments.optim and axolotl's optimizer; empty where the ds_config names one.
std::string optimizer_argument(const Plan& plan);

// What the optimizer takes where nobody says: 2e-5 of full fine-tuning, 2e-4 of adapters; of
// preferences 5e-7 and 5e-6 (the head of trl/scripts/dpo.py), of GRPO 1e-6 and of PPO 3e-6 (the
// defaults of their configurations).
double usual_learning_rate(const Plan& plan);
double planned_epochs(const Plan& plan);
// How often it logs and saves, and what loads its samples.
FormSettings run_settings(const Plan& plan);

}  // namespace zeroplan::foreign
