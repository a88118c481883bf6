// What keeps a gathered weight of stage 3 past its release by the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// The code that keeps the gathered weight of a parameter of stage 3 beyond its release by the
// engine.
enum class KeptWeight : std::uint8_t {
  by_nothing,
  // torch's own linear, where memory_efficient_linear does not replace it (runtime/zero/linear.py):
  // a view, until its node has run.
  by_linear,
  // A recomputation without reentrance, until the gradient is there: DeepSpeed's own linear saves
  // the weight with the input, and what is packed then is a tensor of the storage itself
  // (torch/utils/checkpoint.py _recomputation_hook: x.detach()).
  by_recomputation,
  // The product of four bits, whose context holds it (bitsandbytes autograd/_functions.py
  // MatMul4Bit: ctx.tensors): past the hooks of a checkpoint, until the graph dies with the loss.
  by_graph,
};

// By parameter; empty where nothing keeps any. Persistent weights are never gathered again.
std::vector<KeptWeight> kept_weights(const Plan& plan, const EngineConfig& config);

// Whether the engine's release in `pass` leaves it with what keeps it. `reentrant`: checkpoints run
// their forward pass without a graph, and recompute with one of the block.
bool keeps_weight(KeptWeight kept, Pass pass, bool reentrant);
// Checkpoints with reentrance.
bool checkpoints_reentrantly(const Plan& plan);

}  // namespace zeroplan
