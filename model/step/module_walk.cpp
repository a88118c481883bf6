#include "model/step/module_walk.hpp"

#include "model/plan/trainer.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// Containers that are never called themselves, so that no hook of theirs fires.
bool is_called(const Module& module) {
  return module.type != "ModuleList" && module.type != "ModuleDict" &&
         module.type != "ParameterList";
}

// Does the class read its head's weight and never call the module? TRL's fused heads
// (trainer/utils.py add_fused_lm_head).
bool reads_head_itself(const Plan& plan) {
  return plan.trainer != nullptr && plan.trainer->code == TrainerCode::trl &&
         plan.trainer->scores_tokens() && plan.software.trl_acts(ReleaseRule::trl_scores_in_chunks);
}

// A weight that a module reads and does not own is external to it: from the next pass on it is
// gathered when that module, here the whole model, begins, and stays until its pass is over
// (parameter_offload.py ZeROOrderedDict.__getitem__: register_external_parameter).
void make_head_external(const Model& model, FetchModel& fetched) {
  std::vector<ParameterIndex>& whole = fetched.modules.front().parameters;
  for (std::size_t m = 1; m < model.modules.size(); ++m) {
    if (model.modules[m].parent != 0 || model.modules[m].type != "Linear") continue;
    std::vector<ParameterIndex>& own = fetched.modules[m].parameters;
    whole.insert(whole.end(), own.begin(), own.end());
    own.clear();
  }
}

}  // namespace

FetchModel fetch_model(const Plan& plan) {
  FetchModel fetched = make_fetch_model(*plan.model, plan.engine_parameters, plan.engine);
  if (reads_head_itself(plan) && !fetched.modules.empty()) {
    make_head_external(*plan.model, fetched);
  }
  return fetched;
}

bool misses_ends_of_recomputed(const EngineConfig& config) {
  return config.acts(ReleaseRule::misses_recomputed_ends);
}

ModuleWalk::ModuleWalk(const Model& model, const ModelGraph& graph, bool misses_ends_of_recomputed)
    : model_(model), graph_(graph), misses_ends_(misses_ends_of_recomputed) {
  outer_.reserve(model_.modules.size());
  for (const Module& module : model_.modules) outer_.push_back(is_called(module));
  for (const BlockInstance& instance : graph_.instances) {
    for (const std::int32_t index : instance.modules) {
      if (index >= 0) outer_[static_cast<std::size_t>(index)] = false;
    }
  }
  is_open_.resize(model_.modules.size(), false);
}

// A reentrant one is a whole forward pass before the backward pass: nothing is unwound, and nothing
// entered ahead but the layer whose hooks are outside.
void ModuleWalk::begin_recomputation(std::int32_t instance) {
  recomputed_ = instance;
  ahead_.clear();
  met_ = 0;
  unwound_.clear();
  layer_ = -1;
  const Block& block = graph_.block_of(graph_.instances[at(instance)]);
  const std::vector<Event>& backward = block.of(Pass::backward);
  if (graph_.checkpoints_inside_hooks) {
    const auto first = std::find_if(backward.begin(), backward.end(), [](const Event& event) {
      return event.kind == EventKind::module_enter;
    });
    if (first != backward.end()) layer_ = first->index;
    if (layer_ >= 0 && graph_.checkpoint_reentrant) ahead_.push_back(*first);
  }
  if (graph_.checkpoint_reentrant) return;
  for (const Event& event : backward) {
    if (event.kind == EventKind::operation) break;
    const bool hook = event.kind == EventKind::module_enter || event.kind == EventKind::module_exit;
    if (hook) ahead_.push_back(event);
  }
  bool running = true;  // from the end: the exits after the last saved tensor
  const std::vector<Event>& again = block.of(Pass::recompute);
  for (auto event = again.rbegin(); event != again.rend() && running; ++event) {
    if (event->kind == EventKind::module_exit) unwound_.push_back(event->index);
    running = event->kind == EventKind::module_exit || event->kind == EventKind::release;
  }
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
