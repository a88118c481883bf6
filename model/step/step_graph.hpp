// The graph of one micro-batch of a plan.
#pragma once

#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// Throws InputError where the model's graph cannot be built.
ModelGraph step_graph(const Plan& plan);

}  // namespace zeroplan
