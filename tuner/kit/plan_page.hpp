// PLAN.md: what was planned, what it needs, how to start it, how to check it.
#pragma once

#include <string>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

std::string plan_page(const Plan& plan, const StepResult& prediction);

}  // namespace zeroplan
