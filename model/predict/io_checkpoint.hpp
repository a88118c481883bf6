// A checkpoint's prediction as JSON: `checkpoint` of docs/contract.md section 5.
#pragma once

#include "base/json.hpp"
#include "model/predict/checkpoint.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

Json to_json(const CheckpointPrediction& checkpoint);

// The step/1 document of one configuration: to_json(result) with `checkpoint`, null where the
// engine's is not predicted.
Json step_document(const Plan& plan, const StepResult& result, const CheckpointOptions& options);

}  // namespace zeroplan
