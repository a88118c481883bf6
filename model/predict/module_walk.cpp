#include "model/predict/module_walk.hpp"

namespace zeroplan {
namespace {

// Containers that are never called themselves, so that no hook of theirs fires.
bool is_called(const Module& module) {
  return module.type != "ModuleList" && module.type != "ModuleDict" &&
         module.type != "ParameterList";
}

}  // namespace

FetchModel fetch_model(const Plan& plan) {
  return make_fetch_model(*plan.model, plan.engine_parameters, plan.engine);
}

ModuleWalk::ModuleWalk(const Model& model, const ModelGraph& graph) : model_(model), graph_(graph) {
  outer_.reserve(model_.modules.size());
  for (const Module& module : model_.modules) outer_.push_back(is_called(module));
  for (const BlockInstance& instance : graph_.instances) {
    for (const std::int32_t index : instance.modules) {
      if (index >= 0) outer_[static_cast<std::size_t>(index)] = false;
    }
  }
  is_open_.resize(model_.modules.size(), false);
}

// They are entered once in a pass over the model, from the root inwards.
void ModuleWalk::open_ancestors(ModuleIndex module) {
  chain_.clear();
  for (int at = model_.modules[static_cast<std::size_t>(module)].parent; at >= 0;
       at = model_.modules[static_cast<std::size_t>(at)].parent) {
    const auto index = static_cast<std::size_t>(at);
    if (outer_[index] && !is_open_[index]) chain_.push_back(at);
  }
  for (auto at = chain_.rbegin(); at != chain_.rend(); ++at) {
    open_.push_back(*at);
    is_open_[static_cast<std::size_t>(*at)] = true;
  }
}

}  // namespace zeroplan
