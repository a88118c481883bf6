// Time of collectives by kind, size and ranks on the links of a cluster.
//
// A message is the full tensor, as nccl-tests counts it: what every rank holds after an all-gather,
// before a reduce-scatter, before and after an all-reduce; what a rank sends and keeps in an
// all-to-all.
//
// Units: Bytes, Seconds, BytesPerSecond.
#pragma once

#include "base/enum_names.hpp"
#include "model/cost/coefficients.hpp"
#include "model/hardware/hardware.hpp"

namespace zeroplan {

enum class Collective { all_gather, reduce_scatter, all_reduce, broadcast, all_to_all };
inline constexpr EnumNames<Collective, 5> kCollectiveNames{
    {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "all_to_all"}};

// The ranks that take part: so many on each of so many nodes. `concurrent` groups of the same shape
// run at the same time on the same nodes and share their NICs (hpZ, MiCS, tensor parallelism).
struct CollectiveGroup {
  std::int64_t ranks_per_node = 1;
  std::int64_t nodes = 1;
  std::int64_t concurrent = 1;

  std::int64_t ranks() const { return ranks_per_node * nodes; }
};

// All ranks of a cluster as one group, or as many as there are of them.
CollectiveGroup whole_cluster(const Cluster& cluster);

// What a collective keeps busy.
enum class CollectiveLink { none, nvlink, pcie, host_memory, network };

// A collective's time in the parts a simulator needs: it cannot be overlapped with itself, and
// `transfer` is what grows when the link is shared.
struct CollectiveCost {
  Seconds latency;      // independent of the size
  Seconds transfer;     // of the bytes, ramp included
  BytesPerSecond rate;  // asymptotic, of `wire` bytes on the slowest link a rank's data crosses
  Bytes wire;           // that pass this link
  CollectiveLink link = CollectiveLink::none;

  Seconds total() const { return latency + transfer; }
};

// [T12] t = a + W / r + sqrt(tau W / r) for a group inside a node
//
//   a = a_base + hops a_hop;  hops: n - 1, all-reduce 2 (n - 1)
//   W = V (n - 1) / n bytes a rank sends; all-reduce twice that; broadcast V
//   r = e L  with L the NVLink rate and e by kind, or by topology where PCIe or host memory joins
//
// The last term is what middle sizes lose: the geometric mean of a ramp tau and the transfer.
// Between nodes the ring passes each NIC once: r = min(r_inside, e_net NIC / concurrent), hops
// between nodes cost the link's latency, and `network_bulk_hop_seconds` more in bulk; an all-reduce
// may run as a tree instead, V (k - 1) / k twice over each NIC with k nodes and log2 k hops. Small
// messages (`nccl_small_protocol_bytes` a rank) may trade half the rate for less latency.
// Source: nccl-tests curves of aiconfigurator, vTrain, vidur; NCCL src/graph/tuning.cc. One rank
// waits for nobody. Left out: protocol switches (up to 40 % at 1-4 MiB), rails, congestion. Checked
// by tests/published/collective_times_test.cpp and tests/property/cost_property.cpp.
CollectiveCost collective_cost(Collective kind,
                               Bytes message,
                               const CollectiveGroup& group,
                               const Cluster& cluster,
                               const Coefficients& coefficients);

Seconds collective_time(Collective kind,
                        Bytes message,
                        const CollectiveGroup& group,
                        const Cluster& cluster,
                        const Coefficients& coefficients);

}  // namespace zeroplan
