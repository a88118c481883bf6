#include "simulator/task_costs.hpp"

#include <algorithm>

#include "model/cost/copies.hpp"
#include "model/cost/cpu_optimizer.hpp"

namespace zeroplan::simulator {
namespace {

float& of(Demands& demands, SharedResource resource) {
  return demands[static_cast<std::size_t>(resource)];
}

float share(double part) { return static_cast<float>(std::clamp(part, 0.0, 1.0)); }

SharedResource resource_of(CollectiveLink link) {
  switch (link) {
    case CollectiveLink::network:
      return SharedResource::network;
    case CollectiveLink::host_memory:
      return SharedResource::host_memory;
    case CollectiveLink::none:
    case CollectiveLink::nvlink:
    case CollectiveLink::pcie:
      break;
  }
  return SharedResource::gpu_link;
}

}  // namespace

Demands demands_of(KernelBound bound) {
  Demands demands{};
  if (bound == KernelBound::compute) of(demands, SharedResource::multiprocessors) = 1.0F;
  if (bound == KernelBound::memory) of(demands, SharedResource::gpu_memory) = 1.0F;
  return demands;
}

Task kernel_task(Seconds duration, KernelBound bound) {
  Task task;
  task.duration = duration;
  task.demands = demands_of(bound);
  return task;
}

Task collective_task(const CostsOf& costs,
                     Collective kind,
                     Bytes message,
                     const CollectiveGroup& group) {
  const Coefficients& coefficients = costs.coefficients;
  Task task;
  task.kind = TaskKind::collective;
  const CollectiveCost cost = collective_cost(kind, message, group, costs.cluster, coefficients);
  task.duration = cost.total();
  if (task.duration == Seconds::zero()) return task;
  const BytesPerSecond moved =
      BytesPerSecond::of(static_cast<double>(cost.wire.count()) / task.duration.seconds());
  of(task.demands, SharedResource::multiprocessors) =
      share(coefficients[Coefficient::compute_slowdown_under_communication]);
  of(task.demands, SharedResource::gpu_memory) =
      share(coefficients[Coefficient::collective_memory_passes] * moved.value() /
            costs.cluster.gpu.memory_bandwidth.value.value());
  of(task.demands, resource_of(cost.link)) = 1.0F;
  return task;
}

Task copy_task(
    const CostsOf& costs, TaskKind direction, Bytes bytes, bool pinned, std::int64_t copying_gpus) {
  const Node& node = costs.cluster.node;
  const CopyLoad load{.copying_gpus = copying_gpus, .pinned = pinned};
  Task task;
  task.kind = direction;
  task.duration = copy_time(bytes, 1, node, load, costs.coefficients);
  const double all =
      copy_rate(node, load, costs.coefficients).value() * static_cast<double>(copying_gpus);
  of(task.demands,
     direction == TaskKind::copy_to_device ? SharedResource::pcie_to_device
                                           : SharedResource::pcie_to_host) = 1.0F;
  of(task.demands, SharedResource::host_memory) =
      share(all / node.host_memory_bandwidth.value.value());
  return task;
}

Task cpu_optimizer_task(const CostsOf& costs, const CpuAdamWork& work) {
  const Node& node = costs.cluster.node;
  const HostLoad load = host_load(node);
  Task task;
  task.kind = TaskKind::cpu_optimizer;
  task.duration = cpu_adam_time(work, node, load, costs.coefficients);
  if (task.duration == Seconds::zero()) return task;
  const double rate = static_cast<double>(cpu_adam_bytes(work, costs.coefficients).count()) *
                      static_cast<double>(load.ranks) / task.duration.seconds();
  of(task.demands, SharedResource::cpu_cores) = 1.0F;
  of(task.demands, SharedResource::host_memory) =
      share(rate / node.host_memory_bandwidth.value.value());
  return task;
}

Task nvme_task(const CostsOf& costs, const NvmeLoad& load) {
  Task task;
  task.kind = TaskKind::nvme;
  task.duration = nvme_time(load, costs.cluster.node, costs.coefficients);
  if (load.read > Bytes::zero()) of(task.demands, SharedResource::nvme_read) = 1.0F;
  if (load.write > Bytes::zero()) of(task.demands, SharedResource::nvme_write) = 1.0F;
  return task;
}

Task host_memory_task(const CostsOf& costs, const HostPass& pass) {
  const Node& node = costs.cluster.node;
  const HostLoad load = host_load(node);
  Task task;
  task.kind = TaskKind::host_memory;
  task.duration = host_pass_time(pass, node, load, costs.coefficients);
  of(task.demands, SharedResource::cpu_cores) = 1.0F;
  of(task.demands, SharedResource::host_memory) =
      share(host_pass_rate(node, load, costs.coefficients).value() /
            node.host_memory_bandwidth.value.value());
  return task;
}

}  // namespace zeroplan::simulator
