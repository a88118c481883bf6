// The workload of a plan as its scenario document says it.
#pragma once

#include "base/json.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// `workload` of scenario_document() without the models beside the trained one, for which that needs
// to know what was said.
Json workload_document(const Plan& plan);

}  // namespace zeroplan
