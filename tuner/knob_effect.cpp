#include "tuner/knob_effect.hpp"

#include <string>

namespace zeroplan::tuner {
namespace {

bool stands_under(const KnobRow& row, std::string_view section) {
  return row.pointer.starts_with(section);
}

}  // namespace

std::vector<KnobValue> search_grid(Knob knob) {
  const KnobRow& row = knob_row(knob);
  std::vector<KnobValue> values;
  for (const KnobLiteral& point : row.grid.empty() ? row.searched_grid : row.grid) {
    values.push_back(to_value(point));
  }
  return values;
}

bool has_effect(Knob knob, const KnobSurroundings& around) {
  const KnobRow& row = knob_row(knob);
  if (!row.stages.contains(around.stage)) return false;
  const bool optimizer_swaps = around.offload_optimizer == OffloadDevice::nvme;
  const bool parameters_swap = around.offload_parameter == OffloadDevice::nvme;
  switch (knob) {
    case Knob::offload_optimizer_device:
    case Knob::offload_param_device:
      return true;
    case Knob::offload_optimizer_ratio:
      // Twin-Flow leaves sub-groups on the GPU; the NVMe swapper knows no ratio.
      return around.offload_optimizer == OffloadDevice::cpu;
    case Knob::offload_optimizer_pin_memory:
      return around.offload_optimizer != OffloadDevice::none;
    case Knob::offload_param_pin_memory:
      return around.offload_parameter != OffloadDevice::none;
    default:
      break;
  }
  if (stands_under(row, "/zero_optimization/offload_optimizer/")) return optimizer_swaps;
  if (stands_under(row, "/zero_optimization/offload_param/")) return parameters_swap;
  if (stands_under(row, "/aio/")) return optimizer_swaps || parameters_swap;
  return true;
}

bool is_possible(Knob knob, const KnobValue& value, const Cluster& cluster) {
  if (const std::string* text = std::get_if<std::string>(&value)) {
    const bool device =
        knob == Knob::offload_optimizer_device || knob == Knob::offload_param_device;
    return !device || *text != "nvme" || cluster.node.nvme.has_value();
  }
  const std::int64_t* integer = std::get_if<std::int64_t>(&value);
  if (knob != Knob::zero_hpz_partition_size || integer == nullptr || *integer <= 1) return true;
  return cluster.nodes > 1 && cluster.gpus_per_node() % *integer == 0;
}

}  // namespace zeroplan::tuner
