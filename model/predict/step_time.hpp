// Time of an optimizer step analytically: the cost functions of model/cost over the graph's
// passes and the engine's own messages, with overlap as the engine has it.
//
// [T1] a pass        C = sum over operations of [T6], [T8], [T9];  H = the same of [T10]
//
// [T2] a collective  t = [T12] of the message, and the kernels that copy for it
//
// [T3] a micro-step  the tasks in the engine's order on three clocks (step_clock.hpp), and
//                    s (t_c - exposed) for what runs beside a collective ([T16])
//
// [T4] a step        T = (sum of micro-steps + optimizer + copies + swapping + fixed)
//                        (1 + l log2 nodes)
//
// Bounds: the longest of the resources (perfect overlap), and all of them one after the other. What
// is left out: docs/model.md. Checked by tests/unit/model/predict/step_time_test.cpp,
// tests/property/predict_property.cpp, tests/published/fsdp_step_time_test.cpp.
#pragma once

#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/stage_work.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_spread.hpp"
#include "model/predict/step_traffic.hpp"

namespace zeroplan {

// With plan.coefficients as they are.
StepTime step_time(const Plan& plan, const ModelGraph& graph, const StepTraffic& traffic);

// The same, and the relative standard deviation (step_spread.hpp).
StepPrediction predict_step_time(const Plan& plan,
                                 const ModelGraph& graph,
                                 const StepTraffic& traffic);

// [T17] The same where stages of a pipeline share a step of m micro-batches:
//
//   T = (span of the passes [P1] + max over stages of (reductions + optimizer + fixed) + tied) s
//
// A stage's passes contain what it moves to its neighbours, which stands in both stages' way
// (runtime/pipe/p2p.py, blocking), and no reduction: those follow the last micro-batch. tied: the
// all-reduce of a tied embedding's gradient between first and last stage. s: [T4]'s factor. Left
// out: a stage that waits for a neighbour to take what it sends. Checked by
// tests/unit/model/families/megatron_test.cpp.
StepTime pipeline_time(const Plan& plan, const std::vector<StageWork>& stages);
StepPrediction predict_pipeline_time(const Plan& plan, const std::vector<StageWork>& stages);

}  // namespace zeroplan
