#include "model/step/kept_weights.hpp"

#include <algorithm>

#include "model/engine/partition.hpp"

namespace zeroplan {

std::vector<KeptWeight> kept_weights(const Plan& plan, const EngineConfig& config) {
  if (config.stage != 3) return {};
  const bool packs = plan.workload.activation_checkpointing == ActivationCheckpointing::full &&
                     !plan.workload.checkpoint_reentrant;
  const KeptWeight linear = !config.stage3.memory_efficient_linear ? KeptWeight::by_linear
                            : packs && !config.embedded            ? KeptWeight::by_recomputation
                                                                   : KeptWeight::by_nothing;
  std::vector<KeptWeight> kept(plan.engine_parameters.size(), KeptWeight::by_nothing);
  for (const Module& module : plan.model->modules) {
    if (module.type != "Linear") continue;
    for (const int parameter : module.parameters) {
      const auto index = static_cast<std::size_t>(parameter);
      const bool four_bits = plan.engine_parameters[index].quantized && !config.embedded;
      kept[index] = four_bits ? KeptWeight::by_graph : linear;
    }
  }
  for (const int parameter : persistent_parameters(config, plan.engine_parameters)) {
    kept[static_cast<std::size_t>(parameter)] = KeptWeight::by_nothing;
  }
  const bool any = std::any_of(
      kept.begin(), kept.end(), [](KeptWeight one) { return one != KeptWeight::by_nothing; });
  return any ? kept : std::vector<KeptWeight>{};
}

bool checkpoints_reentrantly(const Plan& plan) {
  return plan.workload.activation_checkpointing != ActivationCheckpointing::none &&
         plan.workload.checkpoint_reentrant;
}

bool keeps_weight(KeptWeight kept, Pass pass, bool reentrant) {
  switch (kept) {
    case KeptWeight::by_nothing:
      return false;
    case KeptWeight::by_linear:
      return pass == Pass::forward || pass == Pass::recompute;
    case KeptWeight::by_recomputation:
      return pass == Pass::recompute;
    case KeptWeight::by_graph:
      return !reentrant || pass == Pass::forward || pass == Pass::recompute;
  }
  return false;
}

}  // namespace zeroplan
