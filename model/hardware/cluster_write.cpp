// The inline form of a cluster, written.

#include <cmath>

#include "model/hardware/cluster.hpp"
#include "model/hardware/known_hardware.hpp"

namespace zeroplan {
namespace {

// Whole numbers print as such: 1099511627776, not 1.099511627776e+12.
Json number(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value == std::floor(value) && std::abs(value) < kExact) {
    return Json(static_cast<std::int64_t>(value));
  }
  return Json(value);
}

Json link_json(const Link& link) {
  Json json = Json::object();
  json["link"] = name(kLinkKindNames, link.kind);
  json["bandwidth"] = number(link.bandwidth.value.value());
  json["latency"] = link.latency.value.seconds();
  return json;
}

bool same(const std::optional<Quantity<FlopsPerSecond>>& a,
          const std::optional<Quantity<FlopsPerSecond>>& b) {
  return a.has_value() == b.has_value() && (!a || a->value == b->value);
}

bool same_peaks(const PeakFlops& a, const PeakFlops& b) {
  return a.fp32.value == b.fp32.value && a.fp16.value == b.fp16.value && same(a.tf32, b.tf32) &&
         same(a.bf16, b.bf16) && same(a.fp8, b.fp8);
}

Json peaks_json(const PeakFlops& peak) {
  Json json = Json::object();
  json["fp32"] = number(peak.fp32.value.value());
  if (peak.tf32) json["tf32"] = number(peak.tf32->value.value());
  json["fp16"] = number(peak.fp16.value.value());
  if (peak.bf16) json["bf16"] = number(peak.bf16->value.value());
  if (peak.fp8) json["fp8"] = number(peak.fp8->value.value());
  return json;
}

// The name, and what differs from the GPU of that name.
Json gpu_json(const Gpu& gpu) {
  const Gpu base = gpu_of_key(gpu.key);
  if (gpu.is_cpu()) return Json(base.name);
  Json json = Json::object();
  if (gpu.memory.value != base.memory.value) json["memory_bytes"] = gpu.memory.value.count();
  if (gpu.memory_bandwidth.value != base.memory_bandwidth.value) {
    json["memory_bandwidth"] = number(gpu.memory_bandwidth.value.value());
  }
  if (gpu.compute_capability != base.compute_capability) {
    json["compute_capability"] = std::to_string(gpu.compute_capability.major) + "." +
                                 std::to_string(gpu.compute_capability.minor);
  }
  if (!same_peaks(gpu.peak, base.peak)) json["peak_flops"] = peaks_json(gpu.peak);
  if (json.members().empty() && gpu.name == base.name) return Json(base.name);
  json["name"] = gpu.name;
  if (gpu.name != base.name) json["like"] = base.name;
  return json;
}

template <typename T>
void mark(Json& assumed, const Quantity<T>& quantity, std::string_view key) {
  if (quantity.confidence == Confidence::assumed) assumed.push_back(Json(key));
}

// Keys whose numbers are unspecified, so that reading the document again keeps that in mind.
Json assumed_keys(const Cluster& cluster, const Json& document) {
  const Node& node = cluster.node;
  Json keys = Json::array();
  if (document.find("intra_node") != nullptr) mark(keys, node.intra_node.bandwidth, "intra_node");
  if (document.find("inter_node") != nullptr) {
    mark(keys, cluster.inter_node.bandwidth, "inter_node");
  }
  mark(keys, node.host_memory, "host_memory_bytes");
  mark(keys, node.host_memory_bandwidth, "host_memory_bandwidth");
  mark(keys, node.cpu_cores, "cpu_cores");
  mark(keys, node.pcie_bandwidth, "pcie_bandwidth");
  if (node.nvme) mark(keys, node.nvme->capacity, "nvme");
  return keys;
}

bool is_stated(const Link& link) { return link.bandwidth.confidence == Confidence::stated; }

}  // namespace

Json to_json(const Cluster& cluster) {
  const Node& node = cluster.node;
  Json json = Json::object();
  json["nodes"] = cluster.nodes;
  json["gpus_per_node"] = node.gpus_per_node;
  if (!cluster.hosts.empty()) {
    json["hosts"] = Json::array();
    for (const std::string& host : cluster.hosts) json["hosts"].push_back(host);
  }
  json["gpu"] = gpu_json(cluster.gpu);
  // A link that joins nothing is left out unless somebody gave it; reading fills in the same one.
  if (node.gpus_per_node > 1 || is_stated(node.intra_node)) {
    Json link = link_json(node.intra_node);
    link["topology"] = name(kTopologyNames, node.topology);
    json["intra_node"] = link;
  }
  if (cluster.nodes > 1 || is_stated(cluster.inter_node)) {
    json["inter_node"] = link_json(cluster.inter_node);
  }
  json["host_memory_bytes"] = node.host_memory.value.count();
  json["host_memory_bandwidth"] = number(node.host_memory_bandwidth.value.value());
  if (node.host_share < 1.0) json["host_share"] = number(node.host_share);
  json["cpu_cores"] = node.cpu_cores.value;
  json["cpu_sockets"] = node.cpu_sockets;
  json["pcie_bandwidth"] = number(node.pcie_bandwidth.value.value());
  json["gpus_per_pcie_uplink"] = node.gpus_per_pcie_uplink;
  if (node.nvme) {
    Json nvme = Json::object();
    nvme["read_bandwidth"] = number(node.nvme->read_bandwidth.value.value());
    nvme["write_bandwidth"] = number(node.nvme->write_bandwidth.value.value());
    nvme["capacity_bytes"] = node.nvme->capacity.value.count();
    json["nvme"] = nvme;
  } else {
    json["nvme"] = false;
  }
  json["assumed"] = assumed_keys(cluster, json);
  json["assumptions"] = Json::array();
  for (const Phrase& sentence : cluster.assumptions) {
    json["assumptions"].push_back(sentence.english());
  }
  return json;
}

}  // namespace zeroplan
