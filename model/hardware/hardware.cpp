#include "model/hardware/hardware.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "model/check.hpp"
#include "model/embedded.hpp"
#include "model/hardware/hardware_catalog.hpp"
#include "model/json.hpp"

namespace zeroplan {
namespace {

// --- reading profiles: our own files, so anything unexpected is a programmer's error

const Json& member(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  ZP_CHECK(found != nullptr, "a profile lacks a key");
  return *found;
}

std::string text_or_empty(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  return found == nullptr ? std::string() : found->as_string();
}

bool flag(const Json& object, std::string_view key, bool otherwise) {
  const Json* found = object.find(key);
  return found == nullptr ? otherwise : found->as_boolean();
}

template <typename T>
T from_number(const Json& value) {
  if constexpr (std::is_same_v<T, double>) {
    return value.as_number();
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    return std::llround(value.as_number());
  } else if constexpr (std::is_same_v<T, Bytes>) {
    return Bytes::nearest(value.as_number());
  } else {
    return T::of(value.as_number());
  }
}

template <typename T>
Quantity<T> quantity(const Json& leaf) {
  Quantity<T> result;
  result.value = from_number<T>(member(leaf, "value"));
  const auto confidence = find(kConfidenceNames, member(leaf, "confidence").as_string());
  ZP_CHECK(confidence.has_value(), "a profile has an unknown confidence");
  result.confidence = *confidence;
  result.relative_sd = member(leaf, "relative_sd").as_number();
  result.source = member(leaf, "source").as_string();
  result.note = text_or_empty(leaf, "note");
  result.seen = flag(leaf, "seen", true);
  return result;
}

template <typename T>
std::optional<Quantity<T>> optional_quantity(const Json& object, std::string_view key) {
  const Json* leaf = object.find(key);
  if (leaf == nullptr) return std::nullopt;
  return quantity<T>(*leaf);
}

std::optional<std::int64_t> optional_integer(const Json& object, std::string_view key) {
  const Json* found = object.find(key);
  if (found == nullptr) return std::nullopt;
  return found->as_integer();
}

template <typename Enum, std::size_t N>
Enum enumerator(const EnumNames<Enum, N>& table, const Json& value) {
  const std::optional<Enum> found = find(table, value.as_string());
  ZP_CHECK(found.has_value(), "a profile has an unknown name");
  return *found;
}

ComputeCapability capability(const std::string& text) {
  ComputeCapability result;
  const char* end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, result.major);
  ZP_CHECK(error == std::errc() && dot != end && *dot == '.', "no compute capability");
  std::from_chars(dot + 1, end, result.minor);
  return result;
}

PeakFlops peaks(const Json& object) {
  PeakFlops result;
  result.fp32 = quantity<FlopsPerSecond>(member(object, "fp32"));
  result.tf32 = optional_quantity<FlopsPerSecond>(object, "tf32");
  result.fp16 = quantity<FlopsPerSecond>(member(object, "fp16"));
  result.bf16 = optional_quantity<FlopsPerSecond>(object, "bf16");
  result.fp8 = optional_quantity<FlopsPerSecond>(object, "fp8");
  return result;
}

// The card's own side of its link to the host: PCIe by generation and lanes, or as given.
void read_host_link(const Json& object, Gpu& gpu) {
  if (const Json* pcie = object.find("pcie")) {
    gpu.pcie_generation = static_cast<int>(member(*pcie, "generation").as_integer());
    gpu.pcie_lanes = static_cast<int>(member(*pcie, "lanes").as_integer());
  }
  if (const Json* given = object.find("host_link")) {
    gpu.host_link = quantity<BytesPerSecond>(*given);
    return;
  }
  gpu.host_link.value = pcie_line_rate(gpu.pcie_generation, gpu.pcie_lanes);
  gpu.host_link.confidence = Confidence::datasheet;
  gpu.host_link.source = "PCI Express base specification: rate and line code of the generation";
}

CatalogGpu read_gpu(const std::string& key, const Json& object) {
  CatalogGpu entry;
  Gpu& gpu = entry.gpu;
  gpu.key = key;
  gpu.name = member(object, "name").as_string();
  gpu.product_name = member(object, "product_name").as_string();
  gpu.form = enumerator(kFormFactorNames, member(object, "form"));
  gpu.architecture = member(object, "architecture").as_string();
  gpu.compute_capability = capability(member(object, "compute_capability").as_string());
  gpu.memory = quantity<Bytes>(member(object, "memory_bytes"));
  gpu.memory_bandwidth = quantity<BytesPerSecond>(member(object, "memory_bandwidth"));
  gpu.peak = peaks(member(object, "peak_flops"));
  gpu.bf16_supported = member(object, "bf16_supported").as_boolean();
  gpu.nvlink = optional_quantity<BytesPerSecond>(object, "nvlink");
  read_host_link(object, gpu);
  gpu.l2 = quantity<Bytes>(member(object, "l2_bytes"));
  gpu.sm_count = quantity<std::int64_t>(member(object, "sm_count"));
  gpu.power_watts = quantity<double>(member(object, "power_watts"));
  gpu.pcie_peer_to_peer = flag(object, "pcie_peer_to_peer", true);
  gpu.usual_node = member(object, "usual_node").as_string();
  entry.family = member(object, "family").as_string();
  for (const Json& size : member(object, "sizes_gb").items()) {
    entry.sizes_gb.push_back(size.as_integer());
  }
  return entry;
}

GpuCatalog read_gpus() {
  const Json root = parse_json(embedded_file("profiles/gpus.json"), "profiles/gpus.json").root;
  GpuCatalog catalog;
  for (const auto& [name, family] : member(root, "families").members()) {
    GpuFamily& entry = catalog.families.emplace_back();
    entry.name = name;
    for (const Json& spelling : member(family, "spellings").items()) {
      entry.spellings.push_back(folded_name(spelling.as_string()));
    }
    entry.size_gb = optional_integer(family, "size_gb");
  }
  for (const auto& [key, object] : member(root, "gpus").members()) {
    catalog.gpus.push_back(read_gpu(key, object));
  }
  for (const auto& [size, family] : member(root, "usual_of_size_gb").members()) {
    catalog.usual_of_size[std::stoll(size)] = family.as_string();
  }
  catalog.cpu = read_gpu("cpu", member(root, "cpu")).gpu;
  return catalog;
}

Quantity<Seconds> latency_of(const Json& latencies, LinkKind kind) {
  return quantity<Seconds>(member(latencies, name(kLinkKindNames, kind)));
}

void read_storage(const Json& object, NodeProfile& node) {
  const Json* nvme = object.find("nvme");
  if (nvme == nullptr) return;
  node.has_nvme = nvme->is_object();
  node.nvme_read = optional_quantity<BytesPerSecond>(*nvme, "read_bandwidth");
  node.nvme_write = optional_quantity<BytesPerSecond>(*nvme, "write_bandwidth");
  node.nvme_capacity = optional_quantity<Bytes>(*nvme, "capacity_bytes");
}

NodeProfile read_node(const std::string& key, const Json& object, const Json& latencies) {
  NodeProfile node;
  node.key = key;
  node.name = member(object, "name").as_string();
  for (const Json& gpu : member(object, "gpus").items()) node.gpus.push_back(gpu.as_string());
  node.gpus_per_node = member(object, "gpus_per_node").as_integer();
  node.topology = enumerator(kTopologyNames, member(object, "topology"));
  node.cpu = text_or_empty(object, "cpu");
  node.host_memory = optional_quantity<Bytes>(object, "host_memory_bytes");
  node.host_memory_bandwidth = optional_quantity<BytesPerSecond>(object, "host_memory_bandwidth");
  node.cpu_cores = optional_quantity<std::int64_t>(object, "cpu_cores");
  node.cpu_sockets = optional_integer(object, "cpu_sockets");
  if (const auto generation = optional_integer(object, "host_pcie_generation")) {
    node.host_pcie_generation = static_cast<int>(*generation);
  }
  if (const auto lanes = optional_integer(object, "host_pcie_lanes")) {
    node.host_pcie_lanes = static_cast<int>(*lanes);
  }
  node.gpus_per_pcie_uplink = optional_integer(object, "gpus_per_pcie_uplink");
  if (const Json* network = object.find("inter_node")) {
    Link& link = node.inter_node.emplace();
    link.kind = enumerator(kLinkKindNames, member(*network, "link"));
    link.bandwidth = quantity<BytesPerSecond>(member(*network, "bandwidth"));
    link.latency = latency_of(latencies, link.kind);
    node.network_cards = member(*network, "cards").as_integer();
  }
  read_storage(object, node);
  node.usual = flag(object, "usual", false);
  node.one_site = flag(object, "one_site", false);
  node.divisible = flag(object, "divisible", true);
  node.per_gpu = flag(object, "per_gpu", false);
  return node;
}

NodeCatalog read_nodes() {
  const Json root = parse_json(embedded_file("profiles/nodes.json"), "profiles/nodes.json").root;
  const Json& latencies = member(root, "latency");
  NodeCatalog catalog;
  for (std::size_t kind = 0; kind < kLinkKindNames.names.size(); ++kind) {
    catalog.latencies.push_back(latency_of(latencies, static_cast<LinkKind>(kind)));
  }
  for (const auto& [key, object] : member(root, "nodes").members()) {
    catalog.nodes.push_back(read_node(key, object, latencies));
  }
  return catalog;
}

}  // namespace

const GpuCatalog& gpu_catalog() {
  static const GpuCatalog catalog = read_gpus();
  return catalog;
}

const NodeCatalog& node_catalog() {
  static const NodeCatalog catalog = read_nodes();
  return catalog;
}

const Quantity<FlopsPerSecond>& dense_peak(const Gpu& gpu, DType type) {
  switch (type) {
    case DType::fp16:
      return gpu.peak.fp16;
    case DType::bf16:
      return gpu.peak.bf16 ? *gpu.peak.bf16 : gpu.peak.fp32;
    default:
      return gpu.peak.fp32;
  }
}

// Transfers per second and lane of generations 1 to 6, times the share the line code leaves.
// Source: PCI Express Base Specification 6.0: 2.5, 5 GT/s with 8b/10b; 8, 16, 32 GT/s with
// 128b/130b; 64 GT/s with 242 of 256 bytes of a flit for data.
BytesPerSecond pcie_line_rate(int generation, int lanes) {
  constexpr std::array<double, 7> kBytesPerLane = {0.0,
                                                   2.5e9 * 8 / 10 / 8,
                                                   5e9 * 8 / 10 / 8,
                                                   8e9 * 128 / 130 / 8,
                                                   16e9 * 128 / 130 / 8,
                                                   32e9 * 128 / 130 / 8,
                                                   64e9 * 242 / 256 / 8};
  ZP_CHECK(generation >= 1 && generation <= 6 && lanes >= 1, "no such PCIe link");
  return BytesPerSecond::of(kBytesPerLane[static_cast<std::size_t>(generation)] * lanes);
}

std::vector<Gpu> all_gpus() {
  std::vector<Gpu> gpus;
  for (const CatalogGpu& entry : gpu_catalog().gpus) gpus.push_back(entry.gpu);
  return gpus;
}

std::vector<NodeProfile> all_nodes() { return node_catalog().nodes; }

Gpu gpu_of_key(std::string_view key) {
  for (const CatalogGpu& entry : gpu_catalog().gpus) {
    if (entry.gpu.key == key) return entry.gpu;
  }
  ZP_CHECK(key == "cpu", "no GPU of that key");
  return cpu_rank();
}

NodeProfile node_of_key(std::string_view key) {
  const std::vector<NodeProfile>& nodes = node_catalog().nodes;
  const auto found = std::find_if(
      nodes.begin(), nodes.end(), [&](const NodeProfile& node) { return node.key == key; });
  ZP_CHECK(found != nodes.end(), "no node of that key");
  return *found;
}

NodeProfile usual_node(const Gpu& gpu, std::int64_t gpus_per_node) {
  const NodeProfile* best = nullptr;
  for (const NodeProfile& node : node_catalog().nodes) {
    const bool has_gpu = std::find(node.gpus.begin(), node.gpus.end(), gpu.key) != node.gpus.end();
    if (!has_gpu || node.gpus_per_node != gpus_per_node || node.one_site) continue;
    if (best == nullptr || (node.usual && !best->usual)) best = &node;
  }
  return best != nullptr ? *best : node_of_key(gpu.usual_node);
}

namespace {

// How far so much of a machine is from what was said; infinite where one of the values is another.
double distance(const NodeProfile& node, const HostGiven& given, double share = 1.0) {
  constexpr double kSame = 0.10;
  double sum = 0.0;
  const auto hold = [&](double said, double has) {
    const double off = std::abs(said / has - 1.0);
    sum += off <= kSame ? off : std::numeric_limits<double>::infinity();
  };
  if (given.memory) {
    const double has = node.host_memory ? node.host_memory->value.gib() * share : 0.0;
    hold(given.memory->gib(), has);
  }
  if (given.cpu_cores) {
    const double has = node.cpu_cores ? static_cast<double>(node.cpu_cores->value) * share : 0.0;
    hold(static_cast<double>(*given.cpu_cores), has);
  }
  return sum;
}

}  // namespace

NodeProfile likely_node(const Gpu& gpu, std::int64_t gpus_per_node, const HostGiven& given) {
  const NodeProfile usual = usual_node(gpu, gpus_per_node);
  if (!given.memory && !given.cpu_cores) return usual;
  constexpr double kClearly = 0.01;
  const NodeProfile* best = nullptr;
  const double share =
      std::min(1.0, static_cast<double>(gpus_per_node) / static_cast<double>(usual.gpus_per_node));
  // A machine with as many GPUs is nearer than all of a larger one's host beside some of its GPUs.
  const double partly = usual.gpus_per_node > gpus_per_node ? 2.0 * kClearly : 0.0;
  double nearest = std::min(distance(usual, given) + partly, distance(usual, given, share));
  for (const NodeProfile& node : node_catalog().nodes) {
    const bool has_gpu = std::find(node.gpus.begin(), node.gpus.end(), gpu.key) != node.gpus.end();
    const bool whole = node.gpus_per_node == gpus_per_node || (given.memory && given.cpu_cores);
    if (!has_gpu || node.gpus_per_node < gpus_per_node || !whole) continue;
    // A centre's machine is known by its cores and by as many GPUs, not by a size that many have.
    const bool same_cores = node.cpu_cores && given.cpu_cores == node.cpu_cores->value;
    if (node.one_site && (node.gpus_per_node != gpus_per_node || !same_cores)) continue;
    if (!(distance(node, given) < nearest - kClearly)) continue;
    nearest = distance(node, given);
    best = &node;
  }
  return best != nullptr ? *best : usual;
}

Quantity<Seconds> usual_latency(LinkKind kind) {
  return node_catalog().latencies[static_cast<std::size_t>(kind)];
}

Gpu cpu_rank() { return gpu_catalog().cpu; }

}  // namespace zeroplan
