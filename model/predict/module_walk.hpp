// The passes of a graph as module entries and exits of the whole model, which is what stage 3's
// hooks see: blocks know their own modules; the classes around them are entered before the first
// and left after the last.
#pragma once

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

class ModuleWalk {
 public:
  ModuleWalk(const Model& model, const ModelGraph& graph);

  // Calls on_module(ModuleStep) for what an event of a pass means; nothing for most events.
  template <typename OnModule>
  void follow(const PassStep& pass, const Event& event, OnModule&& on_module) {
    const bool enters = event.kind == EventKind::module_enter;
    if (!enters && event.kind != EventKind::module_exit) return;
    const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
    const std::int32_t module = instance.modules[static_cast<std::size_t>(event.index)];
    if (module < 0) return;
    const FetchPass direction =
        pass.pass == Pass::backward ? FetchPass::backward : FetchPass::forward;
    if (enters) {
      open_ancestors(module);
      for (auto at = chain_.rbegin(); at != chain_.rend(); ++at) {
        on_module(ModuleStep{*at, direction, true});
      }
    }
    on_module(ModuleStep{module, direction, enters});
  }

  // The end of a direction: the outer modules are left, the innermost first.
  template <typename OnModule>
  void leave(FetchPass direction, OnModule&& on_module) {
    for (auto at = open_.rbegin(); at != open_.rend(); ++at) {
      on_module(ModuleStep{*at, direction, false});
      is_open_[static_cast<std::size_t>(*at)] = false;
    }
    open_.clear();
  }

 private:
  void open_ancestors(ModuleIndex module);

  const Model& model_;
  const ModelGraph& graph_;
  std::vector<bool> outer_;  // called, and not announced by any block
  std::vector<bool> is_open_;
  std::vector<ModuleIndex> open_;   // outer modules that have been entered, the innermost last
  std::vector<ModuleIndex> chain_;  // those just entered, the innermost first
};

}  // namespace zeroplan
