// The passes of a graph as module entries and exits of the whole model, which is what stage 3's
// hooks see: blocks know their own modules; the classes around them are entered before the first
// and left after the last.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/engine/fetch_schedule.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// A hook that fires.
struct ModuleStep {
  ModuleIndex module = -1;
  FetchPass pass = FetchPass::forward;
  bool enters = true;
};

// Modules and parameters as the coordinator takes them.
FetchModel fetch_model(const Plan& plan);

// DeepSpeed 0.16.0 to 0.16.7 count a module's inputs on and do not begin at zero again
// (parameter_offload.py _post_backward_module_hook: ds_grads_remaining). What is recomputed without
// reentrance counts twice and down once, so that its backward never ends: what was gathered for
// it stays until the optimizer's step.
bool misses_ends_of_recomputed(const EngineConfig& config);

class ModuleWalk {
 public:
  ModuleWalk(const Model& model, const ModelGraph& graph, bool misses_ends_of_recomputed = false);

  // Calls on_module(ModuleStep) for what an event of a pass means; nothing for most events. Every
  // event of a micro-batch comes through here, in order.
  //
  // A recomputation that is not reentrant runs where backward first needs a saved tensor: the
  // hooks before it have run backward by then. The exception that ends it unwinds
  // those same modules without their forward hooks (torch/utils/checkpoint.py
  // _StopRecomputationError; torch/nn/modules/module.py runs only hooks with always_call). Where
  // the checkpoint is inside the layer's hooks, the layer's backward begins before either kind, and
  // a recomputation does not enter the layer. Checked by
  // tests/unit/model/step/module_walk_test.cpp against the rule of
  // tests/engine/module_calls.hpp.
  template <typename OnModule>
  void follow(const PassStep& pass, const Event& event, OnModule&& on_module) {
    if (pass.pass == Pass::recompute && pass.instance != recomputed_) {
      begin_recomputation(pass.instance);
      for (const Event& entry : ahead_) {
        announce({pass.instance, Pass::backward}, entry, on_module);
      }
    }
    const bool enters = event.kind == EventKind::module_enter;
    if (!enters && event.kind != EventKind::module_exit) return;
    if (pass.pass == Pass::recompute && !enters && is_unwound(event.index)) return;
    if (pass.pass == Pass::recompute && event.index == layer_) return;
    if (pass.pass == Pass::backward && pass.instance == recomputed_ && met_ < ahead_.size()) {
      ++met_;
      return;
    }
    announce(pass, event, on_module);
  }

  // The end of a direction: the outer modules are left, the innermost first.
  template <typename OnModule>
  void leave(FetchPass direction, OnModule&& on_module) {
    for (auto at = open_.rbegin(); at != open_.rend(); ++at) {
      on_module(ModuleStep{*at, direction, false});
      is_open_[static_cast<std::size_t>(*at)] = false;
    }
    open_.clear();
    recomputed_ = -1;
  }

 private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  template <typename OnModule>
  void announce(const PassStep& pass, const Event& event, OnModule&& on_module) {
    const std::int32_t module = graph_.instances[at(pass.instance)].modules[at(event.index)];
    if (module < 0) return;
    const bool enters = event.kind == EventKind::module_enter;
    const FetchPass direction =
        pass.pass == Pass::backward ? FetchPass::backward : FetchPass::forward;
    if (!enters && direction == FetchPass::backward && misses_end(pass.instance)) return;
    if (enters) {
      open_ancestors(module);
      for (auto outer = chain_.rbegin(); outer != chain_.rend(); ++outer) {
        on_module(ModuleStep{*outer, direction, true});
      }
    }
    on_module(ModuleStep{module, direction, enters});
  }

  bool misses_end(std::int32_t instance) const {
    return misses_ends_ && !graph_.checkpoint_reentrant &&
           graph_.instances[at(instance)].checkpointed;
  }

  bool is_unwound(std::int32_t module) const {
    return std::find(unwound_.begin(), unwound_.end(), module) != unwound_.end();
  }

  void begin_recomputation(std::int32_t instance);
  void open_ancestors(ModuleIndex module);

  const Model& model_;
  const ModelGraph& graph_;
  bool misses_ends_;
  std::vector<bool> outer_;  // called, and not announced by any block
  std::vector<bool> is_open_;
  std::vector<ModuleIndex> open_;      // outer modules that have been entered, the innermost last
  std::vector<ModuleIndex> chain_;     // those just entered, the innermost first
  std::int32_t recomputed_ = -1;       // the instance recomputed last in this backward
  std::vector<Event> ahead_;           // the first of its backward: announced before they come
  std::size_t met_ = 0;                // of these, how many have come since
  std::vector<std::int32_t> unwound_;  // its modules that were running when the recomputation ended
  std::int32_t layer_ = -1;            // its outermost module, where that has hooks outside
};

}  // namespace zeroplan
