#include "model/step/fsdp_work.hpp"

namespace zeroplan {

FsdpWork fsdp_work(const Plan& plan, const ModelGraph& graph) {
  FsdpWork work;
  work.units = fsdp_units(plan.fsdp, plan.engine_parameters, plan.wrapped_block);
  work.unit_of_parameter = fsdp_unit_of(work.units, plan.engine_parameters.size());
  for (const BlockInstance& instance : graph.instances) {
    int unit = 0;
    for (const std::int32_t parameter : instance.parameters) {
      unit = plan.wrapped_block[static_cast<std::size_t>(parameter)] + 1;
      if (unit > 0) break;
    }
    work.unit_of_instance.push_back(unit);
    if (work.visits.empty() || work.visits.back() != unit) work.visits.push_back(unit);
  }
  return work;
}

}  // namespace zeroplan
