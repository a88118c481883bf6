// Lines about a prediction that fit and tune print alike.
#pragma once

#include <string>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// What nobody stated is needed; what somebody did is compared.
std::string host_memory_text(const Plan& plan, const StepResult& result);

// For a plan that fills its card, or whose allocator gives memory back in every step: what that
// costs. Else nothing.
std::string at_limit_text(const StepResult& result);

}  // namespace zeroplan
