// What an optimizer keeps for each element it updates.
//
// Sources: deepspeed/ops/adam/cpu_adam.py, ops/lion/cpu_lion.py (allocates a second, unused
// moment), ops/adagrad/cpu_adagrad.py, torch/optim/*.py, transformers/optimization.py Adafactor
// (flattened parameters are one-dimensional, so the second moment is not factored and there is no
// first), runtime/zero/muon/muon_optimizer.py (of what Muon leaves to Adam; its own momentum is
// momentum_state()), bitsandbytes/optim/optimizer.py Optimizer2State.init_state (two 8-bit moments,
// one fp32 scale per block of 256; tensors under 4096 elements keep fp32 moments). Table:
// docs/model.md lists them.
#pragma once

#include <span>
#include <string_view>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/engine/engine_config.hpp"

namespace zeroplan {

struct OptimizerState {
  std::string_view suffix;     // as a path: "[exp_avg]"
  bool in_state_dtype = true;  // false: `dtype`
  DType dtype = DType::fp32;
  std::int64_t elements_per_entry = 1;  // 256: one scale for 256 elements
};

// State tensors of an optimizer for a tensor of `numel` elements. Scalars (step counts) are left
// out. `wide`: EngineParameter::wide_states.
std::span<const OptimizerState> optimizer_states(OptimizerKind kind,
                                                 Elements numel,
                                                 bool wide = false);

// Muon's one state, in the gradient's type.
std::string_view momentum_state();

constexpr DType state_dtype(const OptimizerState& state, const EngineConfig& config) {
  return state.in_state_dtype ? config.optimizer_state_dtype : state.dtype;
}

constexpr Elements state_numel(const OptimizerState& state, Elements numel) {
  return Elements::of(ceil_div(numel.count(), state.elements_per_entry));
}

// Does the optimizer run on the CPU?
constexpr bool is_cpu_optimizer(OptimizerKind kind) {
  return kind == OptimizerKind::cpu_adam || kind == OptimizerKind::cpu_lion ||
         kind == OptimizerKind::cpu_adagrad;
}

// torch.optim.Adagrad makes its states in its constructor, all others in their first step.
constexpr bool states_at_init(OptimizerKind kind) { return kind == OptimizerKind::torch_adagrad; }

// Tensors as large as a weight that one update keeps beside it, torch/optim/adamw.py: the square
// root, of all tensors of a group in _multi_tensor_adamw; the root and its quotient, of one tensor
// at a time, in _single_tensor_adamw. The fused and CPU optimizers work in place.
constexpr int update_temporaries(OptimizerKind kind, OptimizerImplementation implementation) {
  if (kind != OptimizerKind::torch_adam) return 0;
  if (implementation == OptimizerImplementation::fused) return 0;
  return implementation == OptimizerImplementation::foreach ? 1 : 2;
}

// Their bytes; `all` and `largest`: elements of all tensors that are updated, and of the largest.
constexpr Bytes update_bytes(OptimizerKind kind,
                             OptimizerImplementation implementation,
                             Elements all,
                             Elements largest,
                             DType dtype) {
  const bool lists = implementation == OptimizerImplementation::foreach;
  return (lists ? all : largest) * dtype * update_temporaries(kind, implementation);
}

}  // namespace zeroplan
