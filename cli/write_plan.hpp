// -o of the commands that answer with a plan: a kit's folder, or one file for another tool.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "tuner/kit/forms.hpp"

namespace zeroplan::cli {

struct Output {
  std::string path;
  std::optional<foreign::Form> form;  // nothing: a kit
};

// What -o and --form say; nothing without -o. Throws InputError for a form that nobody knows or
// that the name of the file does not tell.
std::optional<Output> output_of(const Arguments& arguments);

// For searches: throws what write_plan() would throw as far as it is known before there is a plan.
void require_output(const Arguments& arguments, const Output& output);

// Writes and says on `log` what was written, what the file leaves out and what starts it. Throws
// InputError where nothing is written: a place that cannot be written to, a form that cannot say
// the plan.
void write_plan(const Plan& plan,
                const Scenario& scenario,
                const StepResult& prediction,
                const Arguments& arguments,
                const Output& output,
                std::ostream& log);

}  // namespace zeroplan::cli
