#include "model/hardware/cluster_fill.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/phrase_list.hpp"
#include "model/hardware/known_hardware.hpp"

namespace zeroplan {
namespace {

std::string text_of(Bytes bytes) {
  return bytes.gib() < 1000.0 ? fmt::format("{:.4g} GiB", bytes.gib())
                              : fmt::format("{:.0f} GiB", bytes.gib());
}
std::string text_of(BytesPerSecond rate) { return fmt::format("{:.4g} GB/s", rate.value() / 1e9); }
std::string text_of(Seconds time) { return fmt::format("{:.3g} us", time.seconds() * 1e6); }
std::string network_text(BytesPerSecond rate) {
  return fmt::format("{:.4g} Gb/s", rate.value() * 8 / 1e9);
}

template <typename T>
Quantity<T> assumed(T value, const std::string& source, double spread = kAssumedSpread) {
  Quantity<T> result;
  result.value = value;
  result.confidence = Confidence::assumed;
  result.relative_sd = spread;
  result.source = source;
  return result;
}

// Is it said to have what no desktop offers? Source: Intel Core and AMD Ryzen desktop processors:
// one socket, up to 24 cores, two channels with two modules of 64 GB each; boards take four GPUs at
// most.
bool outgrows_workstation(const ClusterGiven& given) {
  constexpr Bytes kMostMemory = 256_GiB;
  constexpr std::int64_t kMostCores = 24;
  constexpr std::int64_t kMostGpus = 4;
  return given.cpu_sockets.value_or(1) > 1 || given.gpus_per_node > kMostGpus ||
         (given.host_memory && given.host_memory->value > kMostMemory) ||
         (given.cpu_cores && given.cpu_cores->value > kMostCores);
}

constexpr std::string_view kWorkstation = "generic_workstation";
constexpr std::string_view kPcieServer = "generic_pcie_server";

// The machine that answers for GPUs whose own machine has a gap.
std::string_view generic_node(const ClusterGiven& given) {
  if (given.gpu.is_cpu()) return "generic_cpu";
  if (given.gpu.form == FormFactor::sxm) return "generic_hgx_server";
  const bool server = given.gpu.pcie_peer_to_peer || outgrows_workstation(given);
  return server ? kPcieServer : kWorkstation;
}

// What is known of a machine that was named whole is given; what was said beside it counts first.
void take_machine(ClusterGiven& given) {
  const NodeProfile& machine = *given.machine;
  if (given.gpus_per_node != machine.gpus_per_node) return;  // a share of it: filled as usual
  const auto take = [](auto& value, const auto& known) {
    if (!value) value = known;
  };
  take(given.topology, std::optional(machine.topology));
  take(given.host_memory, machine.host_memory);
  take(given.host_memory_bandwidth, machine.host_memory_bandwidth);
  take(given.cpu_cores, machine.cpu_cores);
  take(given.cpu_sockets, machine.cpu_sockets);
  take(given.gpus_per_pcie_uplink, machine.gpus_per_pcie_uplink);
  if (machine.inter_node && !given.inter_node.bandwidth) {
    take(given.inter_node.kind, std::optional(machine.inter_node->kind));
    given.inter_node.bandwidth = machine.inter_node->bandwidth;
    take(given.inter_node.latency, std::optional(machine.inter_node->latency));
  }
  NvmeGiven& nvme = given.nvme;
  const bool drives_said = nvme.read_bandwidth || nvme.write_bandwidth || nvme.capacity;
  if (machine.has_nvme == false && !drives_said) nvme.none = true;
  take(nvme.read_bandwidth, machine.nvme_read);
  take(nvme.write_bandwidth, machine.nvme_write);
  take(nvme.capacity, machine.nvme_capacity);
}

// Fills one cluster: looks each missing value up in a chain of machines, nearest first.
class Filler {
 public:
  explicit Filler(ClusterGiven given) : given_(std::move(given)) {
    cluster_.nodes = given_.nodes;
    cluster_.gpu = given_.gpu;
    cluster_.node.gpus_per_node = given_.gpus_per_node;
    cluster_.assumptions = std::move(given_.assumptions);
    const bool grown = outgrows_workstation(given_);
    HostGiven said;
    if (given_.host_memory) said.memory = given_.host_memory->value;
    if (given_.cpu_cores) said.cpu_cores = given_.cpu_cores->value;
    for (NodeProfile node :
         {given_.machine ? *given_.machine : likely_node(given_.gpu, given_.gpus_per_node, said),
          node_of_key(given_.gpu.usual_node),
          node_of_key(generic_node(given_))}) {
      if (!grown || node.key != kWorkstation) add(std::move(node));
    }
  }

  Cluster fill() {
    fill_host();
    fill_pcie();
    fill_intra_node();
    fill_inter_node();
    fill_nvme();
    return std::move(cluster_);
  }

 private:
  void add(NodeProfile node) {
    for (const NodeProfile& known : chain_) {
      if (known.key == node.key) return;
    }
    chain_.push_back(std::move(node));
  }

  // The first machine of the chain that has the value.
  template <typename Member>
  const NodeProfile* first_with(Member member) const {
    for (const NodeProfile& node : chain_) {
      if ((node.*member).has_value()) return &node;
    }
    return nullptr;
  }

  // A job on fewer GPUs than the machine has gets their share of the host, never more than all; a
  // larger share where it is said to have that much of the memory or of the cores.
  double share(const NodeProfile& node) const {
    if (node.per_gpu) return static_cast<double>(given_.gpus_per_node);
    if (!node.divisible || given_.gpus_per_node >= node.gpus_per_node) return 1.0;
    double part =
        static_cast<double>(given_.gpus_per_node) / static_cast<double>(node.gpus_per_node);
    if (given_.host_memory && node.host_memory) {
      part = std::max(part,
                      static_cast<double>(given_.host_memory->value.count()) /
                          static_cast<double>(node.host_memory->value.count()));
    }
    if (given_.cpu_cores && node.cpu_cores) {
      part = std::max(part,
                      static_cast<double>(given_.cpu_cores->value) /
                          static_cast<double>(node.cpu_cores->value));
    }
    return std::min(1.0, part);
  }

  Phrase as(const NodeProfile& node) const {
    const std::string who = node.key.starts_with("generic_") ? node.name : node.key;
    if (node.per_gpu) return phrase("as {} for each GPU", who);
    if (share(node) == 1.0) return phrase("as {}", who);
    const double of_gpus =
        static_cast<double>(given_.gpus_per_node) / static_cast<double>(node.gpus_per_node);
    if (share(node) > of_gpus) return phrase("as {:.0f} % of {}", share(node) * 100.0, who);
    return phrase("as {} ({} of its {} GPUs)", who, given_.gpus_per_node, node.gpus_per_node);
  }

  void say(const Phrase& what, const Phrase& why) {
    cluster_.assumptions.push_back(phrase("{}: assumed, {}", what, why));
  }

  // A written cluster brings its sentences along.
  void say_once(const Phrase& sentence) {
    std::vector<Phrase>& said = cluster_.assumptions;
    const bool known = std::any_of(said.begin(), said.end(), [&](const Phrase& one) {
      return one.english() == sentence.english();
    });
    if (!known) said.push_back(sentence);
  }

  void fill_host() {
    Node& node = cluster_.node;
    if (given_.gpu.shares_host_memory()) {
      node.host_memory = given_.gpu.memory;
      say_once(
          phrase("host and GPU share one pool of {}: {} of it stay with the operating system, "
                 "what the training processes take on the host is not left for the GPU, and "
                 "offloading to the CPU gains nothing",
                 text_of(node.host_memory.value),
                 text_of(given_.gpu.pool_system->value)));
    } else if (given_.host_memory) {
      node.host_memory = *given_.host_memory;
    } else {
      const NodeProfile& like = *first_with(&NodeProfile::host_memory);
      const double bytes = static_cast<double>(like.host_memory->value.count()) * share(like);
      node.host_memory = assumed(Bytes::nearest(bytes), as(like));
      say(phrase("host memory {} per node", text_of(node.host_memory.value)), as(like));
    }
    if (given_.host_memory_bandwidth) {
      node.host_memory_bandwidth = *given_.host_memory_bandwidth;
      node.host_share = given_.host_share.value_or(1.0);
    } else {
      const NodeProfile& like = *first_with(&NodeProfile::host_memory_bandwidth);
      node.host_memory_bandwidth =
          assumed(like.host_memory_bandwidth->value * share(like), as(like));
      if (!like.per_gpu) node.host_share = share(like);
      say(phrase("host memory bandwidth {} per node", text_of(node.host_memory_bandwidth.value)),
          as(like));
    }
    fill_cores();
    if (given_.gpu.is_cpu()) {
      // A CPU rank's memory is its share of the host's.
      cluster_.gpu.memory = node.host_memory;
      cluster_.gpu.memory.value = node.host_memory.value / given_.gpus_per_node;
    }
  }

  void fill_cores() {
    Node& node = cluster_.node;
    const NodeProfile& with_sockets = *first_with(&NodeProfile::cpu_sockets);
    const double sockets = static_cast<double>(*with_sockets.cpu_sockets) * share(with_sockets);
    node.cpu_sockets = given_.cpu_sockets.value_or(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::llround(sockets))));
    if (given_.cpu_cores) {
      node.cpu_cores = *given_.cpu_cores;
      if (!given_.cpu_sockets) {
        say(phrase("CPU sockets {} per node", node.cpu_sockets), as(with_sockets));
      }
      return;
    }
    const NodeProfile& like = *first_with(&NodeProfile::cpu_cores);
    const double cores = static_cast<double>(like.cpu_cores->value) * share(like);
    node.cpu_cores = assumed(std::max<std::int64_t>(1, static_cast<std::int64_t>(cores)), as(like));
    say(phrase("{} CPU cores on {} socket{} per node",
               node.cpu_cores.value,
               node.cpu_sockets,
               node.cpu_sockets == 1 ? "" : "s"),
        as(like));
  }

  // Of a desktop processor's 16 lanes for graphics two GPUs get half each; a board for more GPUs
  // has another processor, with lanes for all of them.
  int lanes_of_a_gpu() const {
    const int own = given_.gpu.pcie_lanes;
    const NodeProfile& host = chain_.back();
    if (!host.host_pcie_lanes || given_.gpus_per_node != 2) return own;
    return std::min(own, *host.host_pcie_lanes / 2);
  }

  // The slower of the GPU's side and the host's side.
  void fill_pcie() {
    Node& node = cluster_.node;
    const NodeProfile* sharing = first_with(&NodeProfile::gpus_per_pcie_uplink);
    const std::int64_t usual_sharing = sharing == nullptr ? 1 : *sharing->gpus_per_pcie_uplink;
    node.gpus_per_pcie_uplink =
        given_.gpus_per_pcie_uplink.value_or(std::min(usual_sharing, given_.gpus_per_node));
    if (given_.pcie_bandwidth) {
      node.pcie_bandwidth = *given_.pcie_bandwidth;
      if (!given_.gpus_per_pcie_uplink && node.gpus_per_pcie_uplink > 1) {
        say(phrase("{} GPUs share a link to the host", node.gpus_per_pcie_uplink), as(*sharing));
      }
      return;
    }
    const Gpu& gpu = given_.gpu;
    BytesPerSecond rate = gpu.host_link.value;
    Phrase why = "the GPU's own link to the host";
    const NodeProfile* like = first_with(&NodeProfile::host_pcie_generation);
    const int generation = like == nullptr
                               ? gpu.pcie_generation
                               : std::min(*like->host_pcie_generation, gpu.pcie_generation);
    const int lanes = lanes_of_a_gpu();
    if (gpu.pcie_generation > 0 && (generation < gpu.pcie_generation || lanes < gpu.pcie_lanes)) {
      rate = pcie_line_rate(generation, lanes);
      why = as(*like);
    }
    node.pcie_bandwidth = assumed(rate, why);
    Phrase what = phrase("{} between a GPU and the host", text_of(rate));
    if (node.gpus_per_pcie_uplink > 1) {
      what.append(phrase(", shared by {} GPUs", node.gpus_per_pcie_uplink));
    }
    say(what, why);
  }

  // How boards with SXM sockets are wired where no profile says it. DGX-1 and HGX-1: Volta and
  // before have no switch up to 8; from Ampere on NVSwitch.
  Topology sxm_topology() const {
    const std::int64_t count = given_.gpus_per_node;
    if (given_.gpu.compute_capability.major >= 8) return Topology::nvswitch;
    if (count <= 4) return Topology::nvlink_mesh;
    return count <= 8 ? Topology::hybrid_cube_mesh : Topology::nvswitch;
  }

  Topology default_topology() const {
    const Gpu& gpu = given_.gpu;
    const Topology over_pcie = gpu.pcie_peer_to_peer ? Topology::pcie : Topology::pcie_no_p2p;
    const bool socketed = gpu.form == FormFactor::sxm || gpu.form == FormFactor::superchip;
    if (gpu.is_cpu()) return Topology::shared_memory;
    if (given_.gpus_per_node == 1) return Topology::single;
    if (given_.intra_node.kind == LinkKind::pcie) return over_pcie;
    if (given_.intra_node.kind == LinkKind::nvlink && !socketed) {
      return given_.gpus_per_node == 2 ? Topology::nvlink_mesh : Topology::nvlink_pairs;
    }
    const NodeProfile& node = chain_.front();
    const bool same_gpu = std::find(node.gpus.begin(), node.gpus.end(), gpu.key) != node.gpus.end();
    if (same_gpu && node.gpus_per_node == given_.gpus_per_node) return node.topology;
    return socketed ? sxm_topology() : over_pcie;
  }

  LinkKind intra_kind(Topology topology) const {
    switch (topology) {
      case Topology::shared_memory:
        return LinkKind::host;
      case Topology::nvswitch:
      case Topology::nvlink_mesh:
      case Topology::hybrid_cube_mesh:
        return given_.gpu.nvlink ? LinkKind::nvlink : LinkKind::pcie;
      case Topology::single:
        return given_.gpu.form == FormFactor::sxm ? LinkKind::nvlink : LinkKind::pcie;
      case Topology::nvlink_pairs:
      case Topology::pcie:
      case Topology::pcie_no_p2p:
        break;
    }
    return LinkKind::pcie;
  }

  Quantity<BytesPerSecond> intra_bandwidth(LinkKind kind) const {
    if (kind == LinkKind::nvlink && given_.gpu.nvlink) {
      return *given_.gpu.nvlink;
    }
    if (kind == LinkKind::host) {
      return assumed(cluster_.node.host_memory_bandwidth.value / 2.0, "a copy reads and writes");
    }
    return assumed(cluster_.node.pcie_bandwidth.value, "as between a GPU and the host");
  }

  void fill_intra_node() {
    Node& node = cluster_.node;
    const LinkGiven& said = given_.intra_node;
    node.topology = given_.topology.value_or(default_topology());
    node.intra_node.kind = said.kind.value_or(intra_kind(node.topology));
    node.intra_node.bandwidth =
        said.bandwidth ? *said.bandwidth : intra_bandwidth(node.intra_node.kind);
    node.intra_node.latency = said.latency ? *said.latency : usual_latency(node.intra_node.kind);
    if (given_.gpus_per_node == 1) return;
    std::vector<Phrase> parts;
    if (!given_.topology) parts.push_back(std::string(name(kTopologyNames, node.topology)));
    if (!said.bandwidth) {
      parts.push_back(phrase("{} per GPU and direction", text_of(node.intra_node.bandwidth.value)));
    }
    if (!said.latency)
      parts.push_back(phrase("latency {}", text_of(node.intra_node.latency.value)));
    if (!parts.empty()) say(phrase("within a node {}", phrase_list(parts)), intra_reason());
  }

  Phrase intra_reason() const {
    if (given_.gpu.nvlink && cluster_.node.intra_node.kind == LinkKind::nvlink) {
      return phrase("as usual for {}", given_.gpu.name);
    }
    return as(chain_.front());
  }

  // NICs come whole: a job on 4 of 8 GPUs has 4 of 8 GPUs, one on 1 of 8 at least one.
  BytesPerSecond network_share(const NodeProfile& node) const {
    const auto gpus = static_cast<double>(node.network_cards.value_or(1));
    const double used = std::max(1.0, std::round(gpus * share(node)));
    return node.inter_node->bandwidth.value * (used / gpus);
  }

  static bool is_rdma(LinkKind kind) {
    return kind == LinkKind::ib || kind == LinkKind::roce || kind == LinkKind::opa;
  }

  // From 100 Gb/s on, machines for training have remote memory access; below, plain TCP.
  LinkKind inter_kind(const Link& usual) const {
    if (!given_.inter_node.bandwidth) return usual.kind;
    constexpr double kSlowestRdma = 100e9 / 8;
    if (given_.inter_node.bandwidth->value.value() < kSlowestRdma) return LinkKind::tcp;
    return is_rdma(usual.kind) ? usual.kind : LinkKind::ib;
  }

  // A centre's network is taken where it is said to be as fast, or where both memory and cores are
  // that machine's.
  bool has_its_network(const NodeProfile& node) const {
    if (!node.one_site) return true;
    if (!given_.inter_node.bandwidth) return given_.host_memory && given_.cpu_cores;
    constexpr double kSame = 0.01;
    const double said = given_.inter_node.bandwidth->value.value();
    return std::abs(said / node.inter_node->bandwidth.value.value() - 1.0) <= kSame;
  }

  const NodeProfile& usual_network() const {
    for (const NodeProfile& node : chain_) {
      if (node.inter_node && has_its_network(node)) return node;
    }
    ZP_CHECK(false, "the generic machines have a network");
  }

  void fill_inter_node() {
    const NodeProfile& like = usual_network();
    const LinkGiven& said = given_.inter_node;
    Link& link = cluster_.inter_node;
    link.kind = said.kind.value_or(inter_kind(*like.inter_node));
    Phrase why = as(like);
    if (said.bandwidth) {
      link.bandwidth = *said.bandwidth;
    } else {
      BytesPerSecond rate = network_share(like);
      if (is_rdma(link.kind) != is_rdma(like.inter_node->kind)) {
        rate = BytesPerSecond::of((is_rdma(link.kind) ? 100e9 : 25e9) / 8);
        why = phrase("the slowest usual for {}", name(kLinkKindNames, link.kind));
      }
      link.bandwidth = assumed(rate, why, kAssumedNetworkSpread);
    }
    link.latency = said.latency ? *said.latency : usual_latency(link.kind);
    if (cluster_.nodes == 1) return;
    cluster_.network_assumed = link.bandwidth.confidence == Confidence::assumed;
    std::vector<Phrase> parts;
    if (!said.kind) parts.push_back(std::string(name(kLinkKindNames, link.kind)));
    if (!said.bandwidth) parts.push_back(phrase("{} per node", network_text(link.bandwidth.value)));
    if (!said.latency) parts.push_back(phrase("latency {}", text_of(link.latency.value)));
    if (!parts.empty()) say(phrase("between nodes {}", phrase_list(parts)), why);
  }

  // One rate or size of the drives: as said, else of the first machine that has it.
  template <typename T>
  Quantity<T> of_drives(const std::optional<Quantity<T>>& said,
                        std::optional<Quantity<T>> NodeProfile::*member,
                        std::vector<Phrase>& parts,
                        const char* what,
                        const NodeProfile*& like) const {
    if (said) return *said;
    like = first_with(member);
    ZP_CHECK(like != nullptr, "the generic machines have NVMe");
    Quantity<T> result;
    if constexpr (std::is_same_v<T, Bytes>) {
      const auto bytes = static_cast<double>((like->*member)->value.count());
      result = assumed(Bytes::nearest(bytes * share(*like)), as(*like));
    } else {
      result = assumed((like->*member)->value * share(*like), as(*like));
    }
    parts.push_back(Phrase(what) + " " + text_of(result.value));
    return result;
  }

  void fill_nvme() {
    const NvmeGiven& said = given_.nvme;
    if (said.none) return;
    const bool nothing_said = !said.read_bandwidth && !said.write_bandwidth && !said.capacity;
    const NodeProfile& known = *first_with(&NodeProfile::has_nvme);
    if (nothing_said && !*known.has_nvme) {
      say("no NVMe drives", as(known));
      return;
    }
    Nvme nvme;
    std::vector<Phrase> parts;
    const NodeProfile* like = nullptr;
    nvme.read_bandwidth =
        of_drives(said.read_bandwidth, &NodeProfile::nvme_read, parts, "reading", like);
    nvme.write_bandwidth =
        of_drives(said.write_bandwidth, &NodeProfile::nvme_write, parts, "writing", like);
    nvme.capacity = of_drives(said.capacity, &NodeProfile::nvme_capacity, parts, "capacity", like);
    if (!parts.empty()) say(phrase("NVMe {} per node", phrase_list(parts)), as(*like));
    cluster_.node.nvme = nvme;
  }

  ClusterGiven given_;
  Cluster cluster_;
  std::vector<NodeProfile> chain_;
};

}  // namespace

Cluster fill_cluster(ClusterGiven given) {
  ZP_CHECK(given.nodes >= 1 && given.gpus_per_node >= 1, "a cluster without GPUs");
  if (given.machine) take_machine(given);
  return Filler(std::move(given)).fill();
}

}  // namespace zeroplan
