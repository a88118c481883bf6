// The step/1 document of docs/contract.md section 5.
#pragma once

#include "base/json.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

Json to_json(const StepResult& result);

}  // namespace zeroplan
