// What a user said about a cluster, and how the rest is filled in. For cluster*.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/hardware/hardware.hpp"

namespace zeroplan {

struct LinkGiven {
  std::optional<LinkKind> kind;
  std::optional<Quantity<BytesPerSecond>> bandwidth;
  std::optional<Quantity<Seconds>> latency;
};

struct NvmeGiven {
  bool none = false;  // said that there is none
  std::optional<Quantity<BytesPerSecond>> read_bandwidth;
  std::optional<Quantity<BytesPerSecond>> write_bandwidth;
  std::optional<Quantity<Bytes>> capacity;
};

// Absent: not said. Confidence of what was said: stated, or assumed where a resolved document marks
// it so.
struct ClusterGiven {
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 1;
  Gpu gpu;
  std::optional<Topology> topology;
  LinkGiven intra_node;
  LinkGiven inter_node;
  std::optional<Quantity<Bytes>> host_memory;
  std::optional<Quantity<BytesPerSecond>> host_memory_bandwidth;
  std::optional<double> host_share;  // of a machine's host that the memory bandwidth is
  std::optional<Quantity<std::int64_t>> cpu_cores;
  std::optional<std::int64_t> cpu_sockets;
  std::optional<Quantity<BytesPerSecond>> pcie_bandwidth;
  std::optional<std::int64_t> gpus_per_pcie_uplink;
  NvmeGiven nvme;
  std::optional<NodeProfile> machine;  // named: nothing of it is assumed
  std::vector<Phrase> assumptions;     // made so far
};

// One standard deviation over the value of what was filled in: two machines with the same GPUs
// differ by about that much in host memory and cores; of the network less is known. These are
// judgements (docs/model.md, assumed constants).
inline constexpr double kAssumedSpread = 0.2;
inline constexpr double kAssumedNetworkSpread = 0.5;

// The cluster without gaps. Precondition: counts are positive, and NVLink was not said without a
// bandwidth for a GPU that has none.
Cluster fill_cluster(ClusterGiven given);

}  // namespace zeroplan
