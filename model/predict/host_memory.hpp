// Host memory of a node, phase by phase: the processes, weights while they are loaded, what the
// engine offloads, and what saving holds.
#pragma once

#include <optional>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/step/outside_passes.hpp"

namespace zeroplan {

// What the checkpoints of one micro-batch take in host memory: a rank's inputs of checkpointed
// blocks, where activations are offloaded.
Bytes checkpoints_on_host(const Plan& plan, const ModelGraph& graph);

// The sentence about what is taken for granted of loading: that weights stay mapped to their files
// where another way would fill the host, or what transformers makes of them there.
std::optional<Phrase> loading_sentence(const Plan& plan);

// Whether ranks that read no weights hold zeros in their place on the host.
bool fills_while_loading(const Plan& plan);

// Whether from_pretrained makes weights of other tensors on the host.
bool converts_while_loading(const Plan& plan);

// What a node's ranks hold between steps: the processes, and the engine's host buffers as
// allocated.
Bytes host_between_steps(const Plan& plan, const std::vector<EngineBuffer>& buffers);

// `activations`: a rank's on the host. Fills prediction.host, prediction.nvme and
// prediction.host_relative_sd.
void predict_host(const Plan& plan,
                  const std::vector<EngineBuffer>& buffers,
                  const OutsidePasses& outside,
                  Bytes activations,
                  MemoryPrediction& prediction);

}  // namespace zeroplan
