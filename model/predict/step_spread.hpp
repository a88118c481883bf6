// How uncertain a step's time is: every coefficient that takes part is moved by one standard
// deviation of its own, every hardware figure that was assumed by its, and the changes are added as
// squares, with `step_time_model_sd` for what no coefficient stands for.
#pragma once

#include <functional>
#include <span>

#include "model/predict/step_model.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

struct StepPrediction {
  StepTime time;
  double relative_sd = 0.0;
};

// A step under moved coefficients and passes; links_moved: those of collectives are among them.
using StepEvaluation =
    std::function<StepTime(const Coefficients&, const ClassFactors&, bool links_moved)>;

StepPrediction with_spread(const StepEvaluation& evaluate,
                           const Plan& plan,
                           const ModelGraph& graph,
                           const StepTraffic& traffic);

// What is moved one by one, besides the classes of kernels and of host work (coefficient_of).
// Without: what shapes a kernel's curve (matmul_prologue_depth, matmul_tile_*,
// nccl_small_protocol_bytes, ...), whose level has the spread of all, and what is memory's. Checked
// by tests/unit/model/predict/step_spread_test.cpp.
std::span<const Coefficient> moved_coefficients();

}  // namespace zeroplan
