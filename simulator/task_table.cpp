#include "simulator/task_table.hpp"

#include <algorithm>

#include "model/cost/optimizer_time.hpp"
#include "model/engine/action_work.hpp"
#include "model/plan/host_work.hpp"
#include "model/step/pass_costs.hpp"

namespace zeroplan::simulator {
namespace {

Task on_cpu(Seconds duration) {
  Task task;
  task.duration = duration;
  return task;
}

// An operation's kernels with the product or the attention among them told apart.
TaskWork work_of(const Block& block, const Operation& operation) {
  TaskWork work;
  work.times = operation.times;
  work.kernels = operation.kernels;
  const auto shape = static_cast<std::size_t>(std::max(0, operation.shape));
  if (operation.kind == OpKind::matmul && operation.shape >= 0) {
    work.product = block.products[shape];
    work.kernels = std::max(0, operation.kernels - 1);
  }
  if (operation.kind == OpKind::attention) {
    work.attention = true;
    work.kernels = 0;
  }
  return work;
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
  task.work = work_of(block, operation);
  if (cpu_) {
    task.duration = time.seconds;
    return writer_.add_task(std::move(task));
  }
  task.duration = time.seconds;
  task.demands = demands_of(time.bound);
  return writer_.add_task(std::move(task));
}

TaskIndex TaskTable::kernel(const char* name, Bytes traffic, std::int64_t kernels, Elements cast) {
  return intern(name, traffic.count(), kernels, [&] {
    if (cpu_) return on_cpu(cpu_->stream(traffic, cast, plan_.engine.model_dtype));
    Task task =
        kernel_task(kernels_.streaming(OpKind::copy, traffic, kernels), KernelBound::memory);
    task.dispatch = host_.forward_operation + host_.launch * static_cast<double>(kernels - 1);
    task.work.kernels = static_cast<std::int32_t>(kernels);
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
    if (cpu_) {  // nothing beside it: no demands
      Task task = on_cpu(cpu_->collective(kind, message, dtype, group.ranks()));
      task.kind = TaskKind::collective;
      return task;
    }
    Task task = collective_task(costs(), kind, message, group);
    task.dispatch = host_.collective_call;
    task.work.bytes = message;
    task.work.ranks = group.ranks();
    return task;
  });
}

TaskIndex TaskTable::copy(TaskKind direction, Bytes bytes, bool pinned, std::int64_t copying_gpus) {
  const char* const name =
      direction == TaskKind::copy_to_device ? "copy to device" : "copy to host";
  return intern(name, bytes.count(), copying_gpus * 2 + (pinned ? 1 : 0), [&] {
    if (cpu_) {
      Task task = on_cpu(cpu_->stream(bytes * 2));
      task.kind = direction;
      return task;
    }
    Task task = copy_task(costs(), direction, bytes, pinned, copying_gpus);
    task.dispatch = host_.forward_operation;
    task.work.bytes = bytes;
    task.work.pinned = pinned;
    return task;
  });
}

TaskIndex TaskTable::gpu_optimizer(Elements parameters,
                                   DType state,
                                   OptimizerKind kind,
                                   OptimizerImplementation implementation) {
  const bool lists =
      kind == OptimizerKind::torch_adam && implementation != OptimizerImplementation::fused;
  const std::int64_t key = static_cast<std::int64_t>(state) * 2 + (lists ? 1 : 0);
  return intern("optimizer", parameters.count(), key, [&] {
    if (cpu_) return on_cpu(cpu_->adamw(parameters));
    GpuAdamWork work;
    work.parameters = parameters;
    work.master = state;
    work.gradient = state;
    work.writes_half_copy = false;  // the engine copies the weights itself
    work.kind = lists ? GpuAdam::foreach : GpuAdam::fused;
    Task task = kernel_task(gpu_adam_time(work, plan_.cluster.gpu, plan_.coefficients),
                            KernelBound::memory);
    task.dispatch = host_.forward_operation;
    return task;
  });
}

TaskIndex TaskTable::muon_update(const MuonMatrices& matrices,
                                 NewtonSchulz method,
                                 DType gradient) {
  return intern("Newton-Schulz", matrices.rows, (matrices.columns << 20) + matrices.count, [&] {
    Task task = kernel_task(kernels_.muon_update(matrices, method, gradient), KernelBound::compute);
    const NewtonSchulzProducts products = newton_schulz_products(matrices, method);
    const std::int64_t kernels =
        newton_schulz_traffic(matrices, method, gradient).kernels + products.wide + products.square;
    task.dispatch = host_.forward_operation + host_.launch * static_cast<double>(kernels - 1);
    task.work.kernels = static_cast<std::int32_t>(kernels);
    return task;
  });
}

TaskIndex TaskTable::muon_addition(Elements parameters, DType master) {
  return intern("add update", parameters.count(), static_cast<std::int64_t>(master), [&] {
    Task task =
        kernel_task(muon_addition_time(parameters, master, plan_.cluster.gpu, plan_.coefficients),
                    KernelBound::memory);
    task.dispatch = host_.forward_operation * 2.0;
    task.work.kernels = 2;
    return task;
  });
}

TaskIndex TaskTable::cpu_optimizer(Elements parameters) {
  return intern("CPU optimizer", parameters.count(), 0, [&] {
    if (cpu_) return on_cpu(cpu_->adamw(parameters));
    Task task = cpu_optimizer_task(costs(), cpu_adam_work(plan_, parameters));
    task.dispatch = host_.forward_operation;
    task.work.parameters = parameters;
    return task;
  });
}

TaskIndex TaskTable::host_memory(const char* name, const HostPass& pass, Elements cast) {
  return intern(name, pass.traffic.count(), -1, [&] {
    if (cpu_) return on_cpu(cpu_->stream(pass.traffic, cast, plan_.engine.model_dtype));
    Task task = host_memory_task(costs(), pass);
    task.dispatch = host_.forward_operation;
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
    Task task = nvme_task(costs(), load);
    task.dispatch = host_.forward_operation;
    return task;
  });
}

void TaskTable::issue_action(const EngineConfig& config,
                             const EngineAction& action,
                             StreamId stream) {
  const TaskIndex task = this->action(config, action);
  if (task != kNoTask) writer_.issue(task, stream);
}

TaskIndex TaskTable::action(const EngineConfig& config, const EngineAction& action) {
  const ActionWork work = action_work(config, action);
  switch (work.kind) {
    case WorkKind::none:
      break;
    case WorkKind::kernels:
      return kernel(work.name, work.bytes, work.kernels, work.cast);
    case WorkKind::gpu_update:
      return gpu_optimizer(
          work.updated, config.master_dtype, config.optimizer, config.optimizer_implementation);
    case WorkKind::muon_update:
      return muon_update(work.matrices, config.newton_schulz, action.dtype);
    case WorkKind::muon_addition:
      return muon_addition(work.updated, config.master_dtype);
    case WorkKind::cpu_update:
      return cpu_optimizer(work.updated);
    case WorkKind::host_pass:
      return host_memory(work.name, {work.bytes, work.new_pages}, work.cast);
    case WorkKind::copy_to_host:
    case WorkKind::copy_to_device: {
      const bool to_device = work.kind == WorkKind::copy_to_device;
      // Stage 3 on CPU ranks updates the weights where they are gathered from.
      if (cpu_ && config.stage == 3 && action.in_step && to_device) break;
      return copy(to_device ? TaskKind::copy_to_device : TaskKind::copy_to_host,
                  work.bytes,
                  action.pinned,
                  work.copies_alone ? 1 : plan_.cluster.gpus_per_node());
    }
    case WorkKind::nvme_read:
      return nvme(true, work.bytes);
    case WorkKind::nvme_write:
      return nvme(false, work.bytes);
  }
  return kNoTask;
}

TaskIndex TaskTable::host(const char* name, Seconds seconds) {
  return intern(name, static_cast<std::int64_t>(seconds.seconds() * 1e12), -2, [&] {
    Task task;
    task.dispatch = seconds;
    return task;
  });
}

}  // namespace zeroplan::simulator
