#include "model/hardware/known_hardware.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "model/hardware/hardware_catalog.hpp"

namespace zeroplan {

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

std::int64_t usual_node_size(std::string_view gpu, std::int64_t gpus) {
  // PCIe servers with the most GPUs take ten of two slots: Supermicro SYS-420GP-TNR, Gigabyte
  // G493-ZB0. HGX boards have eight.
  constexpr std::int64_t kMost = 10;
  constexpr std::int64_t kUsual = 8;
  const auto match = find_gpu(gpu, kUsual);
  if (match && match->gpu.shares_host_memory()) return 1;  // a machine each
  if (gpus <= kMost) return gpus;
  // Of a Grace the node is each GPU's own, behind one NVLink.
  if (!match || match->gpu.is_cpu() || node_of_key(match->gpu.usual_node).per_gpu) return gpus;
  const NodeProfile of_all = usual_node(match->gpu, gpus);
  if (of_all.usual && of_all.gpus_per_node == gpus) return gpus;  // DGX-2
  const NodeProfile node = usual_node(match->gpu, kUsual);
  // Nobody joins workstations where servers take the same GPUs.
  const bool small = node.gpus_per_node < 4 || node.key == "generic_workstation";
  const std::int64_t size = small ? kUsual : node.gpus_per_node;
  return gpus % size == 0 ? size : 0;
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
