#include "model/hardware/hardware_catalog.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/embedded.hpp"
#include "base/json.hpp"

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

// The GPU's own side of its link to the host: PCIe by generation and lanes, or as given.
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
  gpu.pool_system = optional_quantity<Bytes>(object, "pool_system_bytes");
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

}  // namespace zeroplan
