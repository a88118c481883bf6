// The activations of one micro-batch, pass by pass: what is alive when a pass over a block begins,
// and at its peak. The sum of the graph's lifetimes over the whole model; weight gradients are kept
// apart because their life after autograd belongs to the engine.
#pragma once

#include <optional>
#include <vector>

#include "model/graph/graph.hpp"

namespace zeroplan {

// How high a stretch of a pass rises above the pass's entry.
struct PassRise {
  CategoryBytes without{};  // at its peak, without weight gradients
  Bytes total;              // sum of `without`
  // With the pass's own weight gradients: if each is taken away as soon as it is complete, or if
  // all stay.
  Bytes dropping;
  Bytes keeping;
};

struct ActivationStep {
  PassStep pass;
  CategoryBytes entry{};  // alive when the pass begins
  // Until the first weight gradient is complete (the engine's hooks have not run yet), and from
  // then on; a pass without weight gradients has no second part.
  PassRise before_gradients;
  PassRise from_first_gradient;
  Bytes weight_gradients;  // complete after the pass
  std::int32_t weight_gradient_count = 0;
};

// Where a trainer runs its other models between logits and loss (EventKind::passes_beside).
struct LossMoment {
  CategoryBytes before{};  // alive then
  CategoryBytes peak{};    // the most from then on until the pass ends
};

struct ActivationTimeline {
  std::vector<ActivationStep> steps;  // in the order of micro_batch(graph)
  std::vector<std::int32_t>
      gradient_order;      // Model::parameters indices as their gradients complete
  Bytes weight_gradients;  // of the whole model
  CategoryBytes after{};   // alive when the last pass has ended
  std::optional<LossMoment> loss;
};

ActivationTimeline activation_timeline(const ModelGraph& graph);

}  // namespace zeroplan
