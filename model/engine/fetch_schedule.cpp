#include "model/engine/fetch_schedule.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"
#include "model/engine/swapping.hpp"
#include "model/releases.hpp"

namespace zeroplan {

void mark_persistent(FetchModel& model, const EngineConfig& config) {
  const Elements model_threshold = config.stage3.model_persistence_threshold;
  model.persistent.assign(model.parameters.size(), false);
  Elements total;
  for (std::size_t p = 0; p < model.parameters.size(); ++p) {
    const Elements numel = model.parameters[p].numel;
    if (numel + total > model_threshold) continue;
    if (numel > config.stage3.parameter_persistence_threshold) continue;
    model.persistent[p] = true;
    total += numel;
  }
}

std::vector<bool> weights_on_drive(const EngineConfig& config,
                                   std::span<const EngineParameter> parameters) {
  std::vector<bool> result;
  if (config.stage != 3 || config.offload_parameter.device != OffloadDevice::nvme) return result;
  const std::vector<SubGroup> groups = sub_groups(config, parameters);
  for (const Elements read : parameter_swap(config, parameters, groups).read) {
    result.push_back(read > Elements::zero());
  }
  return result;
}

std::vector<ModuleIndex> leaves_around(const FetchModel& model) {
  const bool any = std::any_of(model.modules.begin(),
                               model.modules.end(),
                               [](const FetchModule& module) { return module.leaf; });
  if (!any) return {};
  std::vector<ModuleIndex> around(model.modules.size(), -1);
  for (std::size_t m = 0; m < around.size(); ++m) {
    const ModuleIndex parent = model.modules[m].parent;
    if (parent >= 0) around[m] = around[static_cast<std::size_t>(parent)];
    if (around[m] < 0 && model.modules[m].leaf) around[m] = static_cast<ModuleIndex>(m);
  }
  return around;
}

bool is_leaf_by_default(std::string_view module_class) {
  constexpr std::array<std::string_view, 3> kClasses = {
      "MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock"};
  return std::find(kClasses.begin(), kClasses.end(), module_class) != kClasses.end();
}

FetchModel make_fetch_model(const Model& model,
                            std::vector<EngineParameter> parameters,
                            const EngineConfig& config) {
  ZP_CHECK(parameters.size() == model.parameters.size(), "one entry for each parameter");
  FetchModel result;
  result.parameters = std::move(parameters);
  for (const Module& module : model.modules) {
    const bool leaf =
        config.acts(ReleaseRule::leaf_modules_by_default) && is_leaf_by_default(module.type);
    result.modules.push_back({module.parameters, module.parent, leaf});
  }
  mark_persistent(result, config);
  result.on_drive = weights_on_drive(config, result.parameters);
  return result;
}

}  // namespace zeroplan
