// Stage 3: how much of the weights stands gathered on the GPU while each pass over each block runs,
// in a steady step, and what was gathered for it. Drives the engine's fetch coordinator with the
// module order of the graph and folds its log.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/fingerprint.hpp"
#include "model/engine/fetch_swap.hpp"
#include "model/engine/live_elements.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// One collective of the micro-step.
struct GatherMessage {
  std::int32_t step = 0;  // the pass it is issued in, index into micro_batch(graph)
  Elements elements;      // full output
  std::int32_t ranks = 1;
  bool ahead = false;  // prefetched: a later pass needs it
  bool first = false;  // the micro-step's first kernel waits for it
  // [first_parameter, + parameter_count) of GatherTimeline::parameters.
  std::int32_t first_parameter = 0;
  std::int32_t parameter_count = 0;
};

struct GatherTimeline {
  std::vector<LiveElements> peaks;  // in the order of micro_batch(graph)
  LiveElements after;               // at the end of the micro-step
  GatherTotals forward;
  GatherTotals backward;
  std::vector<GatherMessage> messages;
  std::vector<ParameterIndex> parameters;  // of the messages
  // By parameter: how often the micro-step brings this rank's part of it, and the step behind it.
  std::vector<std::int32_t> brought;
  std::vector<std::int32_t> brought_in_step;

  std::span<const ParameterIndex> parameters_of(const GatherMessage& message) const {
    return std::span(parameters)
        .subspan(static_cast<std::size_t>(message.first_parameter),
                 static_cast<std::size_t>(message.parameter_count));
  }
};

// Of the window's micro-step with so many before it. Up to 0.18 the first one leaves frozen weights
// gathered until the step, so that later ones gather less (FetchCoordinator::Rules). Precondition:
// ZeRO stage 3.
GatherTimeline gather_timeline(const Plan& plan, const ModelGraph& graph, int micro_step = 0);

// Of all that the coordinator does in the first three micro-steps of a window, event by event:
// plans of one graph that agree in it gather, wait and release alike. Precondition: ZeRO stage 3.
Fingerprint gathers_fingerprint(const Plan& plan, const ModelGraph& graph);

// Frozen weights of the blocks, where all of them stand gathered at the end of a backward pass.
// Reentrant recomputation runs under the model itself, whose backward never ends (its inputs are
// integers), and DeepSpeed from 0.19 on leaves them with it. Without reentrance bitsandbytes'
// products keep weights in four bits (KeptWeight::by_graph): kept rehearsals four-bit-...-deep.
// Checked by tests/unit/model/step/module_walk_test.cpp.
struct FrozenWeightsHeld {
  Bytes bytes;                     // zero: they are released block by block
  bool by_products = false;        // else by DeepSpeed
  bool spared_by_release = false;  // DeepSpeed 0.18 lets go of them
  bool spared_by_setting = false;  // use_reentrant turned over lets go of them, with that release
};
FrozenWeightsHeld frozen_weights_held(const Plan& plan);

// What the first three steps ask of the pool of buffers behind weights on NVMe, under an engine
// that differs from the plan's in its knobs alone. Precondition: ZeRO stage 3.
SwapPoolUse swap_pool_use(const Plan& plan, const ModelGraph& graph, const EngineConfig& config);

// The fewest buffers, from `least` on, with which DeepSpeed does not stop for want of one; nothing
// where so many let it read a weight twice before (more buffers let it read further ahead).
// Precondition: ZeRO stage 3.
std::optional<int> enough_swap_buffers(const Plan& plan, const ModelGraph& graph, int least);

}  // namespace zeroplan
