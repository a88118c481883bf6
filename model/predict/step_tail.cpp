#include "model/predict/step_tail.hpp"

#include <algorithm>

#include "model/cost/copies.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/cost/nvme.hpp"
#include "model/cost/optimizer_time.hpp"

namespace zeroplan {
namespace {

CopyLoad load_of(const Plan& plan, bool pinned) {
  CopyLoad load;
  load.copying_gpus = std::max<std::int64_t>(1, plan.cluster.gpus_per_node());
  load.pinned = pinned;
  return load;
}

Seconds copied(const Plan& plan, Bytes bytes, bool pinned, const Coefficients& c) {
  if (bytes == Bytes::zero()) return Seconds::zero();
  return copy_time(bytes, 1, plan.cluster.node, load_of(plan, pinned), c);
}

// Who updates the weights on the GPU, and in which formats.
GpuAdamWork adam_work(const Plan& plan, Elements parameters) {
  GpuAdamWork work;
  work.parameters = parameters;
  OptimizerKind optimizer = plan.engine.optimizer;
  if (plan.workload.engine == TrainingEngine::fsdp) {
    optimizer = plan.fsdp.optimizer;
    work.master = work.gradient = plan.fsdp.storage_dtype;
    work.writes_half_copy = false;  // shards are cast when they are gathered
  } else if (plan.workload.engine == TrainingEngine::ddp) {
    optimizer = plan.ddp.optimizer;
    work.master = work.gradient = plan.ddp.weight_dtype;
    work.writes_half_copy = false;
  } else {
    work.master = plan.engine.master_dtype;
    work.writes_half_copy = plan.engine.model_dtype != DType::fp32;
  }
  work.kind = optimizer == OptimizerKind::torch_adam ? GpuAdam::foreach : GpuAdam::fused;
  return work;
}

Seconds gpu_time(const Plan& plan, const StepTraffic& traffic, const Coefficients& c) {
  if (traffic.gpu_optimizer == Elements::zero()) return Seconds::zero();
  const Gpu& gpu = plan.cluster.gpu;
  const GpuAdamWork work = adam_work(plan, traffic.gpu_optimizer);
  Seconds time = gpu_adam_time(work, gpu, c);
  const bool clips = !runs_deepspeed(plan.workload) || plan.engine.gradient_clipping > 0.0;
  if (clips) {
    time += gradient_scan_time(work.parameters, work.gradient, gpu, c) +
            gradient_scale_time(work.parameters, work.gradient, gpu, c);
  }
  if (runs_deepspeed(plan.workload) && plan.engine.check_gradient_overflow) {
    time += gradient_scan_time(work.parameters, work.gradient, gpu, c);
  }
  return time;
}

NvmeLoad nvme_load(const Plan& plan, Bytes read, Bytes write) {
  NvmeLoad load;
  load.read = read;
  load.write = write;
  load.ranks = std::max<std::int64_t>(1, plan.cluster.gpus_per_node());
  load.pipelined =
      plan.engine.offload_optimizer.pipeline_read && plan.engine.offload_optimizer.pipeline_write;
  load.requests.block = plan.engine.aio_block_size;
  load.requests.threads = plan.engine.aio_parallelism;
  load.requests.queue_depth =
      plan.ds_config.integer(Knob::aio_queue_depth).value_or(load.requests.queue_depth);
  return load;
}

void add_swapping(const Plan& plan,
                  const StepTraffic& traffic,
                  const Coefficients& c,
                  Seconds passes,
                  StepTail& tail) {
  if (traffic.nvme_read == Bytes::zero() && traffic.nvme_write == Bytes::zero()) return;
  const Node& node = plan.cluster.node;
  const NvmeLoad states =
      nvme_load(plan, traffic.nvme_read - traffic.nvme_weights, traffic.nvme_write);
  tail.nvme_alone = nvme_time(states, node, c);
  tail.nvme =
      states.pipelined ? std::max(Seconds::zero(), tail.nvme_alone - tail.cpu) : tail.nvme_alone;
  if (traffic.nvme_weights > Bytes::zero()) {
    const Seconds weights =
        nvme_time(nvme_load(plan, traffic.nvme_weights, Bytes::zero()), node, c);
    tail.nvme_weights = std::max(Seconds::zero(), weights - passes);
  }
}

}  // namespace

StepTail step_tail(const Plan& plan,
                   const StepTraffic& traffic,
                   const Coefficients& c,
                   Seconds passes) {
  StepTail tail;
  tail.gpu = gpu_time(plan, traffic, c);
  if (traffic.cpu_optimizer > Elements::zero()) {
    CpuAdamLoad load;
    load.ranks = std::max<std::int64_t>(1, plan.cluster.gpus_per_node());
    tail.cpu = cpu_adam_time(traffic.cpu_optimizer, plan.cluster.node, load, c);
  }
  Bytes weights_out;  // already copied with their gathers
  for (const MicroStep& window : traffic.windows) {
    for (const StepTask& task : window.tasks) weights_out += task.from_host * window.count;
  }
  const Bytes out = std::max(Bytes::zero(), traffic.host_to_device - weights_out);
  tail.copies =
      copied(plan, out, true, c) + copied(plan, traffic.host_to_device_pageable, false, c);
  const Seconds pinned =
      copied(plan, traffic.device_to_host - traffic.device_to_host_pageable, true, c);
  const Seconds pageable = copied(plan, traffic.device_to_host_pageable, false, c);
  tail.all_copies_back = pinned + pageable;
  // Two thirds of the passes are backward.
  const Seconds beside =
      traffic.overlaps ? std::max(Seconds::zero(), pinned - passes * (2.0 / 3.0)) : pinned;
  tail.in_backward = beside + pageable;
  add_swapping(plan, traffic, c, passes, tail);
  return tail;
}

Seconds weight_copy_time(const Plan& plan, Bytes bytes, const Coefficients& c) {
  return copied(plan, bytes, true, c);
}

}  // namespace zeroplan
