// In which order the modules of a model begin and end, forward and backward, as stage-3 hooks see
// it: with and without activation checkpointing, with frozen parameters, with inputs that carry no
// gradient.
//
// Flow: a list of ModuleCalls (who calls whom, which outputs feed which inputs) and the parameters'
// trainability give a list of ModuleEvents for one micro-step, which drives a FetchCoordinator.
//
// Why it is more than "backward is the reverse of forward": a hook around the backward pass is a
// node of the autograd graph. The one before a module's backward sits on its output and exists only
// if the output requires a gradient; the one after it sits on the positional tensor inputs and
// exists only if one of them does. So the embedding's (integer input) and the root's never fire.
// Nodes run in reverse order of creation, as every node is created after those it feeds on.
// Source: parameter_offload.py:_register_deepspeed_module; torch/utils/checkpoint.py.
#pragma once

#include <cstdint>
#include <vector>

#include "model/engine/fetch_schedule.hpp"

namespace zeroplan {

// Sources of a call's tensors besides the index of an earlier call, which means its output.
inline constexpr std::int32_t kCallerInput = -1;  // what the calling module was given
inline constexpr std::int32_t kModelInput = -2;   // token ids and the like: never a gradient

struct ModuleCall {
  ModuleIndex module = -1;
  std::int32_t caller = -1;           // index of the enclosing call; -1 for the first, the root
  std::vector<std::int32_t> inputs;   // sources of its tensor arguments
  std::vector<std::int32_t> results;  // of a call with calls inside: sources of what it returns
  // Tensors are given by position. By keyword only, the engine's hook does not see them and the
  // module's backward never ends for it (self_attn of Hugging Face's decoder layers).
  bool positional = true;
  std::int32_t outputs = 1;  // tensors it returns that carry a gradient, if any does
  // An operation of the module itself that comes after all calls inside it keeps a tensor for the
  // backward pass. True for layers with weights and activations, false for containers that end
  // with a call or an addition.
  bool keeps_tensors = true;
  bool checkpointed = false;  // its activations are recomputed, where Recompute asks for it
};

enum class Recompute : std::uint8_t { none, reentrant, non_reentrant };

enum class ModuleEventKind : std::uint8_t {
  forward_enter,
  forward_exit,
  backward_begin,  // the autograd pass begins; no module
  backward_enter,
  backward_exit,
};

struct ModuleEvent {
  ModuleEventKind kind;
  ModuleIndex module;

  friend bool operator==(const ModuleEvent&, const ModuleEvent&) = default;
};

// The events of one micro-step. `calls` are in order of entry, the root first; a checkpointed call
// must not stand inside another one.
// Reentrant: the block's forward runs without a graph, and its backward is a full forward followed
// by the backward of that. Without a gradient in its input the block is not trained at all.
// Non-reentrant: the first backward operation of the block that needs a kept tensor recomputes the
// block, and stops right after that same tensor is made, so the modules then running never end.
std::vector<ModuleEvent> module_order(const std::vector<ModuleCall>& calls,
                                      const FetchModel& model,
                                      Recompute recompute);

}  // namespace zeroplan
