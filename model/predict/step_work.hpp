// What one micro-batch of a plan does, worked out once for memory and time: the graph, its tensors'
// lives, and in stage 3 the gathering of weights.
#pragma once

#include "model/graph/activation_timeline.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/gather_timeline.hpp"

namespace zeroplan {

struct StepWork {
  ModelGraph graph;
  ActivationTimeline activations;
  GatherTimeline gathers;  // empty below stage 3
};

// Throws InputError where the model's graph cannot be built.
StepWork step_work(const Plan& plan);

}  // namespace zeroplan
