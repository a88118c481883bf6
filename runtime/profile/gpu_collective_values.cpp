// Collectives between the GPUs of one machine as coefficients of [T12]: fitted together, because
// start, steps, ramp and rate of a curve are not known one by one.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "model/cost/collective.hpp"
#include "model/hardware/cluster.hpp"
#include "runtime/profile/coefficient_fit.hpp"
#include "runtime/profile/gpu_profile.hpp"

namespace zeroplan::runtime {
namespace {

using C = Coefficient;

std::optional<Collective> collective_of(const ProfileRow& row) {
  for (const Collective kind : {Collective::all_gather,
                                Collective::reduce_scatter,
                                Collective::all_reduce,
                                Collective::broadcast,
                                Collective::all_to_all}) {
    if (row.what == "gpu_nccl_" + std::string(name(kCollectiveNames, kind))) return kind;
  }
  return std::nullopt;
}

bool by_nvlink(Topology topology) {
  return topology == Topology::nvswitch || topology == Topology::nvlink_mesh ||
         topology == Topology::nvlink_pairs;
}

// The unknowns of a machine's way between its GPUs.
std::vector<C> unknowns(Topology topology, bool several_sizes, bool sharp) {
  std::vector<C> free;
  const auto add = [&](std::initializer_list<C> more) { free.insert(free.end(), more); };
  if (by_nvlink(topology)) {
    add({C::nccl_base_seconds,
         C::nccl_hop_seconds,
         C::nccl_gather_efficiency,
         C::nccl_scatter_efficiency,
         C::nccl_reduce_efficiency,
         C::nccl_alltoall_efficiency,
         C::nccl_gather_ramp_seconds,
         C::nccl_scatter_ramp_seconds,
         C::nccl_reduce_ramp_seconds,
         C::nccl_alltoall_ramp_seconds});
    // Of pairs alone, their efficiency is that of the kinds.
    if (several_sizes) add({C::nccl_pair_efficiency});
    if (sharp) add({C::nccl_sharp_gain, C::nccl_sharp_ramp_seconds});
  }
  if (!by_nvlink(topology) || topology == Topology::nvlink_pairs) {
    add({C::pcie_collective_base_seconds, C::pcie_collective_hop_seconds, C::pcie_ramp_seconds});
    if (topology == Topology::nvlink_pairs) add({C::pcie_bridge_efficiency});
    if (topology == Topology::pcie) {
      add({C::pcie_peer_pair_efficiency, C::pcie_peer_efficiency, C::pcie_cross_socket_efficiency});
    }
    if (topology == Topology::pcie_no_p2p) add({C::pcie_host_efficiency});
  }
  return free;
}

// Empty where the model's way between the GPUs is the machine's, else why not.
std::string other_way(Topology topology, int nvlinks) {
  if (topology == Topology::hybrid_cube_mesh) return "of a cube mesh no curve is fitted";
  if (nvlinks < 0) return "NVML does not say whether NVLink joins the GPUs";
  if (by_nvlink(topology) && nvlinks == 0) {
    return "the GPU's usual machine has NVLink, and here no link is up";
  }
  if (!by_nvlink(topology) && nvlinks > 0) {
    return "the GPU's usual machine has no NVLink, and here links are up";
  }
  return "";
}

}  // namespace

void gpu_collective_values(const GpuFindings& findings,
                           const Gpu& gpu,
                           double pcie_bandwidth,
                           double host_memory_bandwidth,
                           ValueList& to) {
  const bool any =
      std::any_of(findings.rows.begin(), findings.rows.end(), [](const ProfileRow& row) {
        return collective_of(row).has_value();
      });
  if (!any) return;
  Cluster cluster =
      parse_cluster_text(fmt::format("1x{}x{}", findings.facts.visible, gpu.name), "profile", "");
  const Topology topology = cluster.node.topology;
  if (const std::string why = other_way(topology, findings.facts.nvlinks); !why.empty()) {
    return to.note("collectives stay rows: " + why);
  }
  if (pcie_bandwidth > 0.0) {
    cluster.node.pcie_bandwidth.value = BytesPerSecond::of(pcie_bandwidth);
  }
  if (host_memory_bandwidth > 0.0) {
    cluster.node.host_memory_bandwidth.value = BytesPerSecond::of(host_memory_bandwidth);
  }
  std::vector<FitRow> rows;
  std::int64_t fewest = findings.facts.visible, most = 0;
  for (const ProfileRow& row : findings.rows) {
    const std::optional<Collective> kind = collective_of(row);
    if (!kind) continue;
    const Bytes bytes = Bytes::of(whole_setting(row, "bytes"));
    const CollectiveGroup group{.ranks_per_node = whole_setting(row, "ranks")};
    fewest = std::min(fewest, group.ranks_per_node);
    most = std::max(most, group.ranks_per_node);
    const auto seconds = [cluster, group, bytes, kind = *kind](const Coefficients& c) {
      return collective_time(kind, bytes, group, cluster, c).seconds();
    };
    rows.push_back({seconds, row.spread.median});
  }
  const Coefficients prior(gpu.key);
  const bool sharp = topology == Topology::nvswitch && most > 4 && prior[C::nccl_sharp_gain] > 1.0;
  const std::vector<C> free = unknowns(topology, fewest < most, sharp);
  if (rows.size() < free.size()) return;
  const CoefficientFit fit = fit_coefficients(prior, free, rows);
  for (const FittedCoefficient& found : fit.found) {
    if (!found.informed) continue;
    to.coefficient(
        found.id,
        found.value,
        found.relative_sd,
        fmt::format("fitted to {} collectives of {} to {} GPUs here, median error {:.1f} %",
                    rows.size(),
                    fewest,
                    most,
                    100.0 * fit.median_error),
        gpu.key);
  }
  to.note(
      fmt::format("collectives: the model's formula gives {} measurements within {:.1f} % "
                  "(median), {:.1f} % (largest)",
                  rows.size(),
                  100.0 * fit.median_error,
                  100.0 * fit.largest_error));
}

}  // namespace zeroplan::runtime
