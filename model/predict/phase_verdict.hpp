// Whether the phases of a run that are no part of its training step fit: evaluation, and the
// synchronisation of weights. docs/model.md, "Several models" [B5].
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan {

// The verdict of a run whose training step has the verdict `step`, judge()'s with the same
// arguments: its probability is lowered to that of the phase with the least room, and what the
// phase lacks joins the limits, with what to set. That of a plan without such phases is `step`.
// Phases of one run err together, so that the least of their probabilities counts and not the
// product.
Verdict judge_phases(const Plan& plan,
                     const MemoryPrediction& memory,
                     const GpuVerdict& of_gpu,
                     const PredictOptions& options,
                     Verdict step);

}  // namespace zeroplan
