// Lines about a prediction that fit and tune print alike.
#pragma once

#include <string>

#include "model/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// What a node needs, compared with the host memory that the question states; where it states none,
// beside what such nodes usually have.
Phrase host_memory_text(const Plan& plan, const StepResult& result);

// For a plan that fills its GPU, or whose allocator gives memory back in every step: what that
// costs. Else nothing.
Phrase at_limit_text(const StepResult& result);

}  // namespace zeroplan
