#include "model/families/pipeline_stage.hpp"

#include <algorithm>
#include <vector>

namespace zeroplan {
namespace {

// The layer each module stands in: a child of the outermost list; -1 before the layers, `layers`
// behind them.
std::vector<std::int64_t> layer_of_modules(const Model& model) {
  std::vector<std::int64_t> layer_of(model.modules.size(), -1);
  std::vector<bool> in_layer(model.modules.size(), false);
  std::int64_t layers = 0;
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const Module& module = model.modules[i];
    if (module.parent < 0) continue;
    const auto parent = static_cast<std::size_t>(module.parent);
    if (in_layer[parent]) {
      in_layer[i] = true;
      layer_of[i] = layer_of[parent];
    } else if (model.modules[parent].type == "ModuleList") {
      in_layer[i] = true;
      layer_of[i] = layers++;
    } else if (layers > 0) {
      layer_of[i] = layers;
    }
  }
  return layer_of;
}

}  // namespace

bool has_stages(const Model& model) {
  if (model.shape.kind != ModelKind::decoder) return false;
  const std::vector<std::int64_t> layer_of = layer_of_modules(model);
  std::int64_t last = -1;
  for (std::size_t i = 0; i < layer_of.size(); ++i) {
    const Module& module = model.modules[i];
    const bool is_layer =
        module.parent >= 0 &&
        model.modules[static_cast<std::size_t>(module.parent)].type == "ModuleList";
    if (is_layer) last = std::max(last, layer_of[i]);
  }
  return last + 1 == model.shape.layers;
}

Model stage_of(const Model& model, const StageOfModel& stage) {
  const std::vector<std::int64_t> layer_of = layer_of_modules(model);
  Model result = model;
  result.parameters.clear();
  result.modules.clear();
  std::vector<int> new_module(model.modules.size(), -1);
  std::vector<int> new_parameter(model.parameters.size(), -1);
  for (std::size_t i = 0; i < model.modules.size(); ++i) {
    const Module& module = model.modules[i];
    const std::int64_t layer = layer_of[i];
    const bool inside = layer >= stage.first_layer && layer < stage.first_layer + stage.layers;
    const bool before = layer < 0 && (stage.first || module.parameters.empty());
    const bool behind = layer >= model.shape.layers && stage.last;
    if (!inside && !before && !behind) continue;
    new_module[i] = static_cast<int>(result.modules.size());
    Module kept = module;
    if (kept.parent >= 0) kept.parent = new_module[static_cast<std::size_t>(kept.parent)];
    for (int& parameter : kept.parameters) {
      int& index = new_parameter[static_cast<std::size_t>(parameter)];
      if (index < 0) {
        index = static_cast<int>(result.parameters.size());
        result.parameters.push_back(model.parameters[static_cast<std::size_t>(parameter)]);
      }
      parameter = index;
    }
    result.modules.push_back(std::move(kept));
  }
  return result;
}

}  // namespace zeroplan
