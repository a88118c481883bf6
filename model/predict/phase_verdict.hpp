// Whether the phases of a run that are no part of its training step fit: evaluation, and the
// synchronisation of weights. docs/model.md, "Several models" [B5].
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan {

// Lowers fit_probability of `result` to that of the phase with the least room and adds what the
// phase lacks to its limits, with what to set. Call it after judge(), with the same arguments; a
// plan without such phases stays as it is. Phases of one run err together, so that the least of
// their probabilities counts and not the product.
void judge_phases(const Plan& plan,
                  const MemoryPrediction& memory,
                  const GpuVerdict& step,
                  const PredictOptions& options,
                  StepResult& result);

}  // namespace zeroplan
