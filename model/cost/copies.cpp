#include "model/cost/copies.hpp"

#include <algorithm>

namespace zeroplan {

BytesPerSecond copy_rate(const Node& node, const CopyLoad& load, const Coefficients& c) {
  const std::int64_t copying = std::clamp<std::int64_t>(load.copying_gpus, 1, node.gpus_per_node);
  const std::int64_t behind_one = std::clamp<std::int64_t>(
      node.gpus_per_pcie_uplink, 1, std::max<std::int64_t>(1, node.gpus_per_node));
  const std::int64_t uplinks = ceil_div(node.gpus_per_node, behind_one);
  const double sharers = static_cast<double>(ceil_div(copying, uplinks));
  const BytesPerSecond link =
      node.pcie_bandwidth.value * (c[Coefficient::pcie_copy_efficiency] / sharers);
  const BytesPerSecond dram = node.host_memory_bandwidth.value *
                              (c[Coefficient::copy_dram_share] / static_cast<double>(copying));
  BytesPerSecond rate = std::min(link, dram);
  if (!load.pinned) rate = rate / c[Coefficient::pageable_copy_slowdown];
  if (!load.local_memory) rate = rate * c[Coefficient::numa_remote_share];
  return rate;
}

Seconds copy_time(Bytes bytes,
                  std::int64_t copies,
                  const Node& node,
                  const CopyLoad& load,
                  const Coefficients& c) {
  if (copies <= 0) return {};
  return Seconds::of(static_cast<double>(copies) * c[Coefficient::copy_fixed_seconds]) +
         bytes / copy_rate(node, load, c);
}

}  // namespace zeroplan
