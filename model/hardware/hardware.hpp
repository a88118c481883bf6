// On what is trained: GPUs, links, nodes and clusters, with where each number comes from.
//
// The data stand in profiles/gpus.json and profiles/nodes.json (profiles/README.md); they are
// compiled into the program and read when first asked for. A GPU's capacity is what CUDA reports
// (torch.cuda.mem_get_info), not the number on the box. Link rates are line rates per direction:
// what a collective or a copy achieves of them is for the time model. A number nobody published is
// absent in a NodeProfile; in a Cluster nothing is absent, and what was filled in is said in
// `assumptions`.
//
// Units: Bytes, BytesPerSecond, FlopsPerSecond, Seconds. Text and documents that name a cluster are
// read by model/hardware/cluster.hpp.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "base/phrase.hpp"
#include "base/units.hpp"
#include "model/dtype.hpp"

namespace zeroplan {

// How far a number can be trusted, best first. `stated`: the user said so.
enum class Confidence { stated, measured, datasheet, derived, assumed };
inline constexpr EnumNames<Confidence, 5> kConfidenceNames{
    {"stated", "measured", "datasheet", "derived", "assumed"}};

// A number with where it comes from. `relative_sd` is one standard deviation over the value.
template <typename T>
struct Quantity {
  T value{};
  Confidence confidence = Confidence::assumed;
  double relative_sd = 0.0;
  std::string source;
  std::string note;
  bool seen = true;  // false: written from memory of the named document, not read again
};

// --- GPU

enum class FormFactor { pcie, sxm, nvl, superchip, cpu };
inline constexpr EnumNames<FormFactor, 5> kFormFactorNames{
    {"PCIe", "SXM", "NVL", "superchip", "CPU"}};

struct ComputeCapability {
  int major = 0;
  int minor = 0;
  friend auto operator<=>(const ComputeCapability&, const ComputeCapability&) = default;
};

// Peaks without sparsity, with fp32 accumulation (half rate on GeForce GPUs).
struct PeakFlops {
  Quantity<FlopsPerSecond> fp32;                 // outside the tensor cores
  std::optional<Quantity<FlopsPerSecond>> tf32;  // absent before Ampere
  Quantity<FlopsPerSecond> fp16;
  std::optional<Quantity<FlopsPerSecond>> bf16;  // absent before Ampere
  std::optional<Quantity<FlopsPerSecond>> fp8;
};

struct Gpu {
  std::string key;           // in profiles/gpus.json, e.g. "a800_sxm_80gb"
  std::string name;          // short, what users write and what resolves to it: "A800-80G-SXM"
  std::string product_name;  // "NVIDIA A800-SXM4-80GB"
  FormFactor form = FormFactor::pcie;
  std::string architecture;  // "Ampere (GA100)"
  ComputeCapability compute_capability;
  Quantity<Bytes> memory;  // CUDA's total
  Quantity<BytesPerSecond> memory_bandwidth;
  PeakFlops peak;
  bool bf16_supported = false;
  std::optional<Quantity<BytesPerSecond>> nvlink;  // per direction, sum over the links
  int pcie_generation = 0;                         // 0: not by PCIe (superchips, CPU ranks)
  int pcie_lanes = 0;
  Quantity<BytesPerSecond> host_link;  // per direction, the GPU's own side
  Quantity<Bytes> l2;
  Quantity<std::int64_t> sm_count;
  Quantity<double> power_watts;
  // The operating system and its services hold so much of the pool that host and GPU share, which
  // `memory` is. Absent: the memory is the GPU's own.
  std::optional<Quantity<Bytes>> pool_system;
  bool pcie_peer_to_peer = true;  // false on GeForce: the driver sends copies through host memory
  std::string usual_node;         // key of the NodeProfile it is mostly found in

  bool is_cpu() const { return form == FormFactor::cpu; }
  bool shares_host_memory() const { return pool_system.has_value(); }
};

// The dense peak for matrix products of that type; bf16 where the GPU lacks it counts as fp32
// (PyTorch upcasts). fp32 is without TF32, PyTorch's default.
const Quantity<FlopsPerSecond>& dense_peak(const Gpu& gpu, DType type);

// Line rate of a PCIe link per direction, after its 8b/10b or 128b/130b code (242b/256b in 6.0).
BytesPerSecond pcie_line_rate(int generation, int lanes);

// --- links and nodes

enum class LinkKind { nvlink, pcie, host, ib, roce, opa, tcp, vxlan };  // opa: Omni-Path
inline constexpr EnumNames<LinkKind, 8> kLinkKindNames{
    {"nvlink", "pcie", "host", "ib", "roce", "opa", "tcp", "vxlan"}};

// How the GPUs of a node reach each other.
enum class Topology {
  single,            // one GPU
  nvswitch,          // any pair at the full NVLink rate
  nvlink_mesh,       // links divided evenly over all peers (4 GPUs)
  hybrid_cube_mesh,  // DGX-1 and its like: 1 or 2 links to a peer, some pairs without
  nvlink_pairs,      // bridges join pairs, the rest goes over PCIe
  pcie,              // peer to peer over PCIe
  pcie_no_p2p,       // GeForce and virtual machines: through host memory
  shared_memory      // CPU ranks
};
inline constexpr EnumNames<Topology, 8> kTopologyNames{{"single",
                                                        "nvswitch",
                                                        "nvlink_mesh",
                                                        "hybrid_cube_mesh",
                                                        "nvlink_pairs",
                                                        "pcie",
                                                        "pcie_no_p2p",
                                                        "shared_memory"}};

struct Link {
  LinkKind kind = LinkKind::pcie;
  Quantity<BytesPerSecond> bandwidth;  // line rate per direction
  Quantity<Seconds> latency;           // of one message on the wire, without software above it
};

struct Nvme {
  Quantity<BytesPerSecond> read_bandwidth;  // all drives of the node together
  Quantity<BytesPerSecond> write_bandwidth;
  Quantity<Bytes> capacity;
};

// A machine as published: what is not known is absent.
struct NodeProfile {
  std::string key;                // in profiles/nodes.json, e.g. "dgx_h100"
  std::string name;               // "NVIDIA DGX H100"
  std::vector<std::string> gpus;  // keys of GPUs; a machine may come with either of two
  std::int64_t gpus_per_node = 1;
  Topology topology = Topology::pcie;
  std::string cpu;                 // "2x EPYC 7742 (64c)"; may be empty
  std::optional<Link> inter_node;  // all NICs of the node together
  std::optional<std::int64_t> network_cards;
  std::optional<Quantity<Bytes>> host_memory;                     // what the operating system sees
  std::optional<Quantity<BytesPerSecond>> host_memory_bandwidth;  // DRAM peak, all sockets
  std::optional<Quantity<std::int64_t>> cpu_cores;
  std::optional<std::int64_t> cpu_sockets;
  std::optional<int> host_pcie_generation;  // where the host is older than the GPU
  std::optional<int> host_pcie_lanes;       // of the processor, for all GPUs together
  std::optional<std::int64_t> gpus_per_pcie_uplink;
  std::optional<bool> has_nvme;  // absent: not known
  std::optional<Quantity<BytesPerSecond>> nvme_read, nvme_write;
  std::optional<Quantity<Bytes>> nvme_capacity;
  bool usual = false;     // taken first among machines with that GPU and as many of them
  bool one_site = false;  // of one computing centre: taken only where the cores say so
  bool divisible = true;  // a job on fewer GPUs gets its share of the host
  bool per_gpu = false;   // superchips: each GPU brings its own host, also beyond gpus_per_node
};

// One machine of a cluster, everything known.
struct Node {
  std::int64_t gpus_per_node = 1;
  Topology topology = Topology::single;
  Link intra_node;  // per GPU and direction
  Quantity<Bytes> host_memory;
  Quantity<BytesPerSecond> host_memory_bandwidth;
  Quantity<std::int64_t> cpu_cores;  // physical, all sockets
  std::int64_t cpu_sockets = 1;
  double host_share = 1.0;            // of the machine's host that the memory bandwidth above is
  std::int64_t threads_per_rank = 0;  // OMP_NUM_THREADS; 0: not set, ranks divide the cores
  Quantity<BytesPerSecond> pcie_bandwidth;  // between one GPU and the host, per direction
  std::int64_t gpus_per_pcie_uplink = 1;    // so many GPUs divide one such link when all copy
  std::optional<Nvme> nvme;
};

inline constexpr std::int64_t kMostGpus = 100'000;  // of one cluster; more is taken for a mistake

struct Cluster {
  std::int64_t nodes = 1;
  Gpu gpu;
  Node node;
  Link inter_node;                  // per node and direction; filled also where there is one node
  bool network_assumed = false;     // more than one node, and nobody said what joins them
  std::vector<std::string> hosts;   // names of the nodes, where a hostfile gave them
  std::vector<Phrase> assumptions;  // sentences with the number, for the results

  std::int64_t gpus_per_node() const { return node.gpus_per_node; }
  std::int64_t total_gpus() const { return nodes * node.gpus_per_node; }
};

}  // namespace zeroplan
