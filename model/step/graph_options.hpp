// Plan -> the options under which its model's graph is built.
#pragma once

#include "model/implementations/graph_options.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

GraphOptions graph_options(const Plan& plan);

// Liger's loss takes the place of the model's own; where a trainer scores tokens in code of its
// own, it is not called.
bool calls_fused_loss(const Plan& plan);

}  // namespace zeroplan
