// Gradients of leaf modules under ZeRO-3: a leaf's backward hook reduces them all, in the order of
// its parameters.
//
// Source: DeepSpeed 0.19.6 runtime/zero/stage3.py create_reduce_and_remove_grad_hooks.
#pragma once

#include <vector>

#include "model/engine/fetch_schedule.hpp"

namespace zeroplan {

class LeafGradients {
 public:
  // A model without leaf modules has none.
  LeafGradients() = default;
  explicit LeafGradients(const FetchModel& model);

  // Autograd finished a parameter's gradient. True: it waits for the end of its leaf module.
  bool take(int parameter);

  // The backward pass of `module` has ended: the gradients that waited for it.
  std::vector<int> end_of(ModuleIndex module);
  // The micro-step's backward pass is over: what still waits, where the end of a leaf was missed.
  std::vector<int> rest();

 private:
  std::vector<ModuleIndex> leaf_of_;  // by parameter; -1: none; empty: no leaves
  std::vector<int> waiting_;          // of the leaf whose backward runs
};

}  // namespace zeroplan
