// PLAN.md: what was planned, what it needs, how to start it, how to check it.
#pragma once

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::tuner {

// `learning_rate`: of the folder's other files. `data`: what kit/training.json names; empty:
// nothing.
Phrase plan_page(const Plan& plan,
                 const StepResult& prediction,
                 double learning_rate,
                 const std::string& data);

}  // namespace zeroplan::tuner
