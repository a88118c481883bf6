#include "model/cost/collective.hpp"

#include <algorithm>
#include <cmath>

#include "base/check.hpp"

namespace zeroplan {
namespace {

using C = Coefficient;

// How a group's data travels inside a node.
struct Inside {
  BytesPerSecond rate;
  CollectiveLink link = CollectiveLink::none;
  double hop = 0.0;   // seconds
  double base = 0.0;  // seconds
  double ramp = 0.0;  // seconds
};

Coefficient nvlink_efficiency(Collective kind) {
  switch (kind) {
    case Collective::all_gather:
    case Collective::broadcast:
      return C::nccl_gather_efficiency;
    case Collective::reduce_scatter:
      return C::nccl_scatter_efficiency;
    case Collective::all_reduce:
      return C::nccl_reduce_efficiency;
    case Collective::all_to_all:
      return C::nccl_alltoall_efficiency;
  }
  return C::nccl_gather_efficiency;
}

Coefficient nvlink_ramp(Collective kind) {
  switch (kind) {
    case Collective::all_gather:
    case Collective::broadcast:
      return C::nccl_gather_ramp_seconds;
    case Collective::reduce_scatter:
      return C::nccl_scatter_ramp_seconds;
    case Collective::all_reduce:
      return C::nccl_reduce_ramp_seconds;
    case Collective::all_to_all:
      return C::nccl_alltoall_ramp_seconds;
  }
  return C::nccl_gather_ramp_seconds;
}

Inside over_nvlink(Collective kind, double ranks, const Cluster& cluster, const Coefficients& c) {
  const Topology topology = cluster.node.topology;
  double efficiency = c[nvlink_efficiency(kind)];
  double ramp = c[nvlink_ramp(kind)];
  // NVLink SHARP takes part from five GPUs on (ml-engineering, all-reduce by number of GPUs).
  const bool sharp = c[C::nccl_sharp_gain] > 1.0 && topology == Topology::nvswitch;
  if (kind == Collective::all_reduce && sharp && ranks > 4.0) {
    efficiency *= c[C::nccl_sharp_gain];
    ramp = c[C::nccl_sharp_ramp_seconds];
  }
  if (ranks <= 2.0) efficiency *= c[C::nccl_pair_efficiency];
  if (topology == Topology::hybrid_cube_mesh && ranks <= 2.0) {
    efficiency = c[C::cube_mesh_pair_efficiency];
  } else if (topology == Topology::hybrid_cube_mesh && ranks <= 4.0) {
    efficiency = c[C::cube_mesh_quad_efficiency];
  } else if (topology == Topology::nvlink_mesh && cluster.gpus_per_node() > 2) {
    // Links are divided over all peers: a group uses those between its members.
    const double peers = static_cast<double>(cluster.gpus_per_node()) - 1.0;
    efficiency *= std::min(1.0, (ranks - 1.0) / peers);
  }
  return {cluster.node.intra_node.bandwidth.value * efficiency,
          CollectiveLink::nvlink,
          c[C::nccl_hop_seconds],
          c[C::nccl_base_seconds],
          ramp};
}

Coefficient peer_efficiency(std::int64_t ranks, const Node& node) {
  if (node.topology == Topology::nvlink_pairs) return C::pcie_bridge_efficiency;
  if (ranks <= 2) return C::pcie_peer_pair_efficiency;
  const std::int64_t a_socket =
      ceil_div(node.gpus_per_node, std::max<std::int64_t>(1, node.cpu_sockets));
  return ranks <= a_socket ? C::pcie_peer_efficiency : C::pcie_cross_socket_efficiency;
}

Inside over_pcie(std::int64_t ranks, const Cluster& cluster, const Coefficients& c) {
  const Node& node = cluster.node;
  Inside inside;
  inside.base = c[C::pcie_collective_base_seconds];
  inside.hop = c[C::pcie_collective_hop_seconds];
  inside.ramp = c[C::pcie_ramp_seconds];
  const BytesPerSecond link = node.pcie_bandwidth.value;
  if (node.topology != Topology::pcie_no_p2p) {
    inside.link = CollectiveLink::pcie;
    inside.rate = link * c[peer_efficiency(ranks, node)];
    return inside;
  }
  // Every ring step is a copy out and a copy in, and all of them pass the host's memory.
  inside.link = CollectiveLink::host_memory;
  const BytesPerSecond dram =
      node.host_memory_bandwidth.value /
      (c[C::pcie_host_dram_passes] * static_cast<double>(std::max<std::int64_t>(1, ranks)));
  inside.rate = std::min(link * c[C::pcie_host_efficiency], dram);
  return inside;
}

Inside inside_node(Collective kind,
                   std::int64_t ranks,
                   const Cluster& cluster,
                   const Coefficients& c) {
  const double n = static_cast<double>(ranks);
  switch (cluster.node.topology) {
    case Topology::nvswitch:
    case Topology::nvlink_mesh:
    case Topology::hybrid_cube_mesh:
      return over_nvlink(kind, n, cluster, c);
    case Topology::nvlink_pairs:
      if (ranks == 2 && cluster.gpu.nvlink) {
        Inside pair = over_nvlink(kind, n, cluster, c);
        pair.rate =
            cluster.gpu.nvlink->value * (c[nvlink_efficiency(kind)] * c[C::nccl_pair_efficiency]);
        return pair;
      }
      return over_pcie(ranks, cluster, c);
    case Topology::pcie:
    case Topology::single:
    case Topology::pcie_no_p2p:
      return over_pcie(ranks, cluster, c);
    case Topology::shared_memory:
      return {cluster.node.host_memory_bandwidth.value * (c[C::cpu_rank_collective_efficiency] / n),
              CollectiveLink::host_memory,
              c[C::cpu_rank_hop_seconds],
              c[C::cpu_rank_hop_seconds],
              0.0};
  }
  return {};
}

// Bytes of a message that pass a rank's link in a ring.
double wire_share(Collective kind, double ranks) {
  switch (kind) {
    case Collective::all_reduce:
      return 2.0 * (ranks - 1.0) / ranks;
    case Collective::broadcast:
      return 1.0;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return (ranks - 1.0) / ranks;
  }
  return 1.0;
}

double steps_of(Collective kind, double ranks) {
  return kind == Collective::all_reduce ? 2.0 * (ranks - 1.0) : ranks - 1.0;
}

CollectiveCost with_ramp(double latency, double wire, BytesPerSecond rate, double ramp) {
  CollectiveCost cost;
  cost.latency = Seconds::of(latency);
  cost.rate = rate;
  cost.wire = Bytes::nearest(wire);
  const double transfer = wire / rate.value();
  cost.transfer = Seconds::of(transfer + std::sqrt(ramp * transfer));
  return cost;
}

bool over_sockets(const Cluster& cluster) {
  return cluster.inter_node.kind == LinkKind::tcp || cluster.inter_node.kind == LinkKind::vxlan;
}

// NCCL has no transport of its own for Omni-Path, whose GPUs do the work of verbs on the host.
C efficiency_between_nodes(const Cluster& cluster) {
  if (cluster.inter_node.kind == LinkKind::opa) return C::omnipath_collective_efficiency;
  return over_sockets(cluster) ? C::tcp_collective_efficiency : C::network_collective_efficiency;
}

struct Network {
  BytesPerSecond rate;  // of one group
  double hop;
  double ramp;
};

// NCCL moves small messages with a flag in every word (protocol LL), which halves the rate and
// spares synchronisation, large ones in bulk (Simple); of small messages the faster way is taken.
enum class Protocol { small, bulk };

Network network_of(Protocol protocol,
                   const CollectiveGroup& group,
                   const Cluster& cluster,
                   const Coefficients& c) {
  const bool sockets = over_sockets(cluster);
  double efficiency = c[efficiency_between_nodes(cluster)];
  const bool small = protocol == Protocol::small;
  if (small) efficiency *= c[C::nccl_small_protocol_share];
  const double sharers = static_cast<double>(std::max<std::int64_t>(1, group.concurrent));
  const double hop = cluster.inter_node.latency.value.seconds() +
                     (small || sockets ? 0.0 : c[C::network_bulk_hop_seconds]);
  return {
      cluster.inter_node.bandwidth.value * (efficiency / sharers), hop, c[C::network_ramp_seconds]};
}

// The ring over all ranks: its slowest link, and every node once around.
CollectiveCost ring_between_nodes(Collective kind,
                                  double message,
                                  const CollectiveGroup& group,
                                  const Inside& inside,
                                  const Network& network) {
  const double n = static_cast<double>(group.ranks());
  const double k = static_cast<double>(group.nodes);
  const double local = static_cast<double>(group.ranks_per_node);
  const double rounds = kind == Collective::all_reduce ? 2.0 : 1.0;
  const BytesPerSecond slowest =
      group.ranks_per_node > 1 ? std::min(inside.rate, network.rate) : network.rate;
  const double hops = rounds * ((k - 1.0) * network.hop + (n - k) * inside.hop);
  // All-to-all has no ring: what a node's ranks send to other nodes passes its NICs.
  const double wire = kind == Collective::all_to_all ? message * local * (k - 1.0) / k
                                                     : message * wire_share(kind, n);
  CollectiveCost ring = with_ramp(inside.base + hops, wire, slowest, network.ramp);
  ring.link = slowest < network.rate ? inside.link : CollectiveLink::network;
  return ring;
}

// An all-reduce as a tree over nodes: fewer bytes over the NICs, depth log2 k.
CollectiveCost tree_between_nodes(double message,
                                  const CollectiveGroup& group,
                                  const Inside& inside,
                                  const Network& network) {
  const double n = static_cast<double>(group.ranks());
  const double k = static_cast<double>(group.nodes);
  const double local = static_cast<double>(group.ranks_per_node);
  const double between = (k - 1.0) / k, all = (n - 1.0) / n;
  const BytesPerSecond rate = group.ranks_per_node > 1
                                  ? std::min(network.rate, inside.rate * (between / all))
                                  : network.rate;
  const double hops = 2.0 * (std::ceil(std::log2(k)) * network.hop + (local - 1.0) * inside.hop);
  CollectiveCost tree = with_ramp(inside.base + hops, message * 2.0 * between, rate, network.ramp);
  tree.link = rate < network.rate ? inside.link : CollectiveLink::network;
  return tree;
}

CollectiveCost between_nodes(Collective kind,
                             double message,
                             const CollectiveGroup& group,
                             const Cluster& cluster,
                             const Coefficients& c) {
  CollectiveCost best;
  bool any = false;
  const auto take = [&](const CollectiveCost& cost) {
    if (!any || cost.total() < best.total()) best = cost;
    any = true;
  };
  const bool may_be_small =
      message / static_cast<double>(group.ranks()) <= c[C::nccl_small_protocol_bytes];
  for (const Protocol protocol : {Protocol::small, Protocol::bulk}) {
    if (protocol == Protocol::small && !may_be_small) continue;
    Inside inside = inside_node(kind, group.ranks_per_node, cluster, c);
    if (protocol == Protocol::bulk) {
      inside.hop = std::max(inside.hop, c[C::nccl_bulk_hop_seconds]);
    } else {
      inside.rate = inside.rate * c[C::nccl_small_protocol_share];
    }
    const Network network = network_of(protocol, group, cluster, c);
    take(ring_between_nodes(kind, message, group, inside, network));
    if (kind == Collective::all_reduce) take(tree_between_nodes(message, group, inside, network));
  }
  return best;
}

}  // namespace

CollectiveGroup whole_cluster(const Cluster& cluster) {
  return {cluster.gpus_per_node(), cluster.nodes, 1};
}

CollectiveCost collective_cost(Collective kind,
                               Bytes message,
                               const CollectiveGroup& group,
                               const Cluster& cluster,
                               const Coefficients& coefficients) {
  ZP_CHECK(group.ranks_per_node >= 1 && group.nodes >= 1, "a group without ranks");
  if (group.ranks() <= 1 || message == Bytes::zero()) return {};
  const double bytes = static_cast<double>(message.count());
  if (group.nodes > 1) return between_nodes(kind, bytes, group, cluster, coefficients);
  const Inside inside = inside_node(kind, group.ranks_per_node, cluster, coefficients);
  const double n = static_cast<double>(group.ranks_per_node);
  CollectiveCost cost = with_ramp(inside.base + steps_of(kind, n) * inside.hop,
                                  bytes * wire_share(kind, n),
                                  inside.rate,
                                  inside.ramp);
  cost.link = inside.link;
  return cost;
}

Seconds collective_time(Collective kind,
                        Bytes message,
                        const CollectiveGroup& group,
                        const Cluster& cluster,
                        const Coefficients& coefficients) {
  return collective_cost(kind, message, group, cluster, coefficients).total();
}

}  // namespace zeroplan
