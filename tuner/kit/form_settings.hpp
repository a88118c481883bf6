// A plan as settings of one tool, in the order in which people write them.
#pragma once

#include <string>

#include "model/plan/plan.hpp"
#include "tuner/kit/form.hpp"
#include "tuner/kit/form_text.hpp"

namespace zeroplan {

// Precondition: form is llama_factory, axolotl, trl or trainer. trl is also what a shell line says.
FormSettings settings_of(const Plan& plan, Form form, const FormPlace& place);

// TrainingArguments.optim and axolotl's optimizer. Empty: the ds_config names the optimizer, or
// nothing is to be said.
std::string optimizer_setting(const Plan& plan);

}  // namespace zeroplan
