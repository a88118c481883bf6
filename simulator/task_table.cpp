#include "simulator/task_table.hpp"

#include <algorithm>

#include "model/cost/copies.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/cost/nvme.hpp"
#include "model/cost/optimizer_time.hpp"
#include "model/predict/pass_costs.hpp"

namespace zeroplan {
namespace {

float& of(Demands& demands, SharedResource resource) {
  return demands[static_cast<std::size_t>(resource)];
}

float share(double part) { return static_cast<float>(std::clamp(part, 0.0, 1.0)); }

Demands demands_of(KernelBound bound) {
  Demands demands{};
  if (bound == KernelBound::compute) of(demands, SharedResource::multiprocessors) = 1.0F;
  if (bound == KernelBound::memory) of(demands, SharedResource::gpu_memory) = 1.0F;
  return demands;
}

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

Task on_cpu(Seconds duration) {
  Task task;
  task.duration = duration;
  return task;
}

HostSoftware host_software(const Plan& plan) {
  return {plan.workload.engine,
          plan.workload.frontend,
          plan.workload.implementation,
          runs_deepspeed(plan.workload) ? plan.engine.stage : 0,
          !runs_on_cpu_ranks(plan)};
}

}  // namespace

TaskTable::TaskTable(const Plan& plan, ProgramWriter& writer)
    : plan_(plan),
      writer_(writer),
      kernels_(plan.cluster.gpu,
               plan.coefficients,
               attention_software(plan),
               /*allow_tf32=*/false,
               transfers_of(plan)),
      host_(zeroplan::host_costs(host_software(plan), plan.coefficients)) {
  if (runs_on_cpu_ranks(plan)) cpu_.emplace(plan.cluster.node, plan.coefficients);
  // The embedded runtime has another allocator, whose segments stay.
  if (plan.workload.engine != TrainingEngine::embedded) {
    writer.program().device_memory = device_memory_cost(plan.coefficients);
  }
}

std::size_t TaskTable::KeyHash::operator()(const Key& key) const {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  std::uint64_t hash = std::hash<const char*>()(key.name);
  hash = (hash ^ static_cast<std::uint64_t>(key.a)) * kOdd;
  hash = (hash ^ (hash >> 32) ^ static_cast<std::uint64_t>(key.b)) * kOdd;
  return hash ^ (hash >> 29);
}

template <typename MakeTask>
TaskIndex TaskTable::intern(const char* name, std::int64_t a, std::int64_t b, MakeTask&& make) {
  const auto [at, is_new] = known_.try_emplace(Key{name, a, b}, -1);
  if (is_new) {
    Task task = make();
    task.name = name;
    at->second = writer_.add_task(std::move(task));
  }
  return at->second;
}

TaskIndex TaskTable::operation(const Block& block, const Operation& operation, Pass pass) {
  const KernelTime time = kernels_.of(block, operation);
  Task task;
  task.name = std::string(operation.name);
  task.dispatch = host_.operation(operation, pass);
  if (cpu_) {
    task.duration = time.seconds;
    return writer_.add_task(std::move(task));
  }
  const Seconds floors = Seconds::of(plan_.coefficients[Coefficient::kernel_floor_seconds] *
                                     static_cast<double>(operation.kernels));
  const double wider = autocast_width(plan_, operation.kind);
  task.duration = time.seconds > floors ? floors + (time.seconds - floors) * wider : time.seconds;
  task.demands = demands_of(time.bound);
  return writer_.add_task(std::move(task));
}

TaskIndex TaskTable::kernel(const char* name, Bytes traffic, std::int64_t kernels, Elements cast) {
  return intern(name, traffic.count(), kernels, [&] {
    if (cpu_) return on_cpu(cpu_->stream(traffic, cast, plan_.engine.model_dtype));
    Task task;
    task.dispatch = host_.forward_operation + host_.launch * static_cast<double>(kernels - 1);
    task.duration = kernels_.streaming(OpKind::copy, traffic, kernels);
    task.demands = demands_of(KernelBound::memory);
    return task;
  });
}

TaskIndex TaskTable::collective(Collective kind,
                                Bytes message,
                                const CollectiveGroup& group,
                                DType dtype) {
  std::int64_t shape = (group.ranks_per_node << 40) + (group.nodes << 16) + group.concurrent;
  if (cpu_) shape += static_cast<std::int64_t>(dtype) << 56;
  return intern(name(kCollectiveNames, kind).data(), message.count(), shape, [&] {
    Task task;
    task.kind = TaskKind::collective;
    if (cpu_) {  // nothing beside it: no demands
      task.duration = cpu_->collective(kind, message, dtype, group.ranks());
      return task;
    }
    task.dispatch = host_.collective_call;
    const CollectiveCost cost =
        collective_cost(kind, message, group, plan_.cluster, plan_.coefficients);
    task.duration = cost.total();
    if (task.duration == Seconds::zero()) return task;
    const BytesPerSecond moved =
        BytesPerSecond::of(static_cast<double>(cost.wire.count()) / task.duration.seconds());
    of(task.demands, SharedResource::multiprocessors) =
        share(plan_.coefficients[Coefficient::compute_slowdown_under_communication]);
    of(task.demands, SharedResource::gpu_memory) =
        share(plan_.coefficients[Coefficient::collective_memory_passes] * moved.value() /
              plan_.cluster.gpu.memory_bandwidth.value.value());
    of(task.demands, resource_of(cost.link)) = 1.0F;
    return task;
  });
}

TaskIndex TaskTable::copy(TaskKind direction, Bytes bytes, bool pinned, std::int64_t copying_gpus) {
  const bool to_device = direction == TaskKind::copy_to_device;
  const CopyLoad load{.copying_gpus = copying_gpus, .pinned = pinned};
  return intern(to_device ? "copy to device" : "copy to host",
                bytes.count(),
                copying_gpus * 2 + (pinned ? 1 : 0),
                [&] {
                  const Node& node = plan_.cluster.node;
                  Task task;
                  task.kind = direction;
                  if (cpu_) {
                    task.duration = cpu_->stream(bytes * 2);
                    return task;
                  }
                  task.dispatch = host_.forward_operation;
                  task.duration = copy_time(bytes, 1, node, load, plan_.coefficients);
                  const double all = copy_rate(node, load, plan_.coefficients).value() *
                                     static_cast<double>(copying_gpus);
                  of(task.demands,
                     to_device ? SharedResource::pcie_to_device : SharedResource::pcie_to_host) =
                      1.0F;
                  of(task.demands, SharedResource::host_memory) =
                      share(all / node.host_memory_bandwidth.value.value());
                  return task;
                });
}

TaskIndex TaskTable::gpu_optimizer(Elements parameters, DType state, bool foreach) {
  const std::int64_t kind = static_cast<std::int64_t>(state) * 2 + (foreach ? 1 : 0);
  return intern("optimizer", parameters.count(), kind, [&] {
    if (cpu_) return on_cpu(cpu_->adamw(parameters));
    GpuAdamWork work;
    work.parameters = parameters;
    work.master = state;
    work.gradient = state;
    work.writes_half_copy = false;  // the engine copies the weights itself
    work.kind = foreach ? GpuAdam::foreach : GpuAdam::fused;
    Task task;
    task.dispatch = host_.forward_operation;
    task.duration = gpu_adam_time(work, plan_.cluster.gpu, plan_.coefficients);
    task.demands = demands_of(KernelBound::memory);
    return task;
  });
}

TaskIndex TaskTable::cpu_optimizer(Elements parameters) {
  return intern("CPU optimizer", parameters.count(), 0, [&] {
    if (cpu_) return on_cpu(cpu_->adamw(parameters));
    const Node& node = plan_.cluster.node;
    const CpuAdamLoad load{.ranks = node.gpus_per_node};
    Task task;
    task.kind = TaskKind::cpu_optimizer;
    task.dispatch = host_.forward_operation;
    task.duration = cpu_adam_time(parameters, node, load, plan_.coefficients);
    if (task.duration == Seconds::zero()) return task;
    const double rate =
        static_cast<double>(cpu_adam_bytes(parameters, plan_.coefficients).count()) *
        static_cast<double>(node.gpus_per_node) / task.duration.seconds();
    of(task.demands, SharedResource::cpu_cores) = 1.0F;
    of(task.demands, SharedResource::host_memory) =
        share(rate / node.host_memory_bandwidth.value.value());
    return task;
  });
}

TaskIndex TaskTable::host_memory(const char* name, Bytes traffic, Elements cast) {
  return intern(name, traffic.count(), -1, [&] {
    if (cpu_) return on_cpu(cpu_->stream(traffic, cast, plan_.engine.model_dtype));
    const Node& node = plan_.cluster.node;
    Task task;
    task.kind = TaskKind::host_memory;
    task.dispatch = host_.forward_operation;
    task.duration = traffic * node.gpus_per_node /
                    (node.host_memory_bandwidth.value *
                     plan_.coefficients[Coefficient::cpu_adam_dram_efficiency]);
    of(task.demands, SharedResource::cpu_cores) = 1.0F;
    of(task.demands, SharedResource::host_memory) =
        share(plan_.coefficients[Coefficient::cpu_adam_dram_efficiency]);
    return task;
  });
}

void TaskTable::touch(Bytes tensor) {
  if (!cpu_ || cpu_->first_touch(tensor) == Seconds::zero()) return;
  const auto make = [&] { return on_cpu(cpu_->first_touch(tensor)); };
  writer_.issue(intern("new pages", tensor.count(), -3, make), kComputeStream);
}

TaskIndex TaskTable::nvme(bool reads, Bytes bytes) {
  return intern(reads ? "NVMe read" : "NVMe write", bytes.count(), 0, [&] {
    NvmeLoad load;
    (reads ? load.read : load.write) = bytes;
    load.ranks = plan_.cluster.node.gpus_per_node;
    load.requests.block = plan_.engine.aio_block_size;
    load.requests.threads = plan_.engine.aio_parallelism;
    load.requests.queue_depth = plan_.engine.aio_queue_depth;
    Task task;
    task.kind = TaskKind::nvme;
    task.dispatch = host_.forward_operation;
    task.duration = nvme_time(load, plan_.cluster.node, plan_.coefficients);
    of(task.demands, reads ? SharedResource::nvme_read : SharedResource::nvme_write) = 1.0F;
    return task;
  });
}

TaskIndex TaskTable::host(const char* name, Seconds seconds) {
  return intern(name, static_cast<std::int64_t>(seconds.seconds() * 1e12), -2, [&] {
    Task task;
    task.dispatch = seconds;
    return task;
  });
}

}  // namespace zeroplan
