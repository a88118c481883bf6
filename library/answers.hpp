// What the layers answer, as the library's types.
#pragma once

#include "library/inside.hpp"
#include "model/lint/lint.hpp"
#include "model/lint/subject.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "tuner/remedies.hpp"
#include "tuner/tune.hpp"

namespace zeroplan::library {

v1::Resolved answer_of(const Plan& plan, const Scenario& scenario);
v1::Simulation answer_of(const StepResult& result);
// With the document of `simulate`, which has what a checkpoint is besides.
v1::Simulation answer_of(const Plan& plan, const StepResult& result, tuner::Remedies remedies);
v1::Fit answer_of(const tuner::FitAnswer& answer, const Scenario& scenario);
// `options`: those that the search had; `price`: of a GPU-hour.
v1::Tuning answer_of(const tuner::TuneAnswer& answer,
                     const tuner::TuneOptions& options,
                     std::optional<double> price);
v1::Lint answer_of(const LintReport& report, const LintSubject& subject);

}  // namespace zeroplan::library
