#include "model/predict/step_tail.hpp"

#include <algorithm>

#include "model/cost/copies.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/cost/nvme.hpp"
#include "model/cost/optimizer_time.hpp"
#include "model/plan/host_work.hpp"
#include "model/step/pass_costs.hpp"

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
  const OptimizerImplementation implementation = plan.workload.optimizer_implementation;
  if (plan.workload.engine == TrainingEngine::fsdp) {
    optimizer = plan.fsdp.optimizer;
    work.master = work.gradient = trained_dtype(plan.engine_parameters, plan.fsdp.storage_dtype);
    work.writes_half_copy = false;  // shards are cast when they are gathered
  } else if (plan.workload.engine == TrainingEngine::ddp) {
    optimizer = plan.ddp.optimizer;
    work.master = work.gradient = trained_dtype(plan.engine_parameters, plan.ddp.weight_dtype);
    work.writes_half_copy = false;
  } else {
    work.master = plan.engine.master_dtype;
    work.writes_half_copy = plan.engine.model_dtype != DType::fp32;
  }
  const bool one_kernel =
      optimizer != OptimizerKind::torch_adam || implementation == OptimizerImplementation::fused;
  work.kind = one_kernel ? GpuAdam::fused : GpuAdam::foreach;
  return work;
}

Seconds gpu_time(const Plan& plan, const StepTraffic& traffic, const Coefficients& c) {
  const Elements updated = traffic.gpu_optimizer + traffic.muon_additions;
  if (updated == Elements::zero()) return Seconds::zero();
  const Gpu& gpu = plan.cluster.gpu;
  GpuAdamWork work = adam_work(plan, traffic.gpu_optimizer);
  Seconds time = gpu_adam_time(work, gpu, c);
  if (traffic.muon_additions > Elements::zero()) {
    time += muon_addition_time(traffic.muon_additions, work.master, gpu, c);
  }
  work.parameters = updated;
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

Seconds muon_time(const Plan& plan, const StepTraffic& traffic, const Coefficients& c) {
  Seconds time;
  if (traffic.muon_updates.empty()) return time;
  const KernelTimes kernels(plan.cluster.gpu, c, attention_software(plan));
  for (const MuonUpdates& update : traffic.muon_updates) {
    time += kernels.muon_update(update.matrices, plan.engine.newton_schulz, update.gradient) *
            static_cast<double>(update.count);
  }
  return time;
}

// One rank's share of the node's drives.
Seconds nvme_seconds(const Plan& plan, Bytes read, Bytes write, const Coefficients& c) {
  NvmeLoad load;
  load.read = read;
  load.write = write;
  load.ranks = std::max<std::int64_t>(1, plan.cluster.gpus_per_node());
  load.requests.block = plan.engine.aio_block_size;
  load.requests.threads = plan.engine.aio_parallelism;
  load.requests.queue_depth = plan.engine.aio_queue_depth;
  return nvme_time(load, plan.cluster.node, c);
}

void add_swapping(const Plan& plan,
                  const StepTraffic& traffic,
                  const Coefficients& c,
                  Seconds passes,
                  StepTail& tail) {
  if (traffic.nvme_read == Bytes::zero() && traffic.nvme_write == Bytes::zero()) return;
  const OffloadOptimizerConfig& offload = plan.engine.offload_optimizer;
  const auto read = [&](Bytes bytes) { return nvme_seconds(plan, bytes, Bytes::zero(), c); };
  const auto written = [&](Bytes bytes) { return nvme_seconds(plan, Bytes::zero(), bytes, c); };
  const Seconds new_weights = written(traffic.nvme_weights_written);
  SwappedUpdate update;
  update.groups = traffic.nvme_groups;
  update.read = read(traffic.nvme_read - traffic.nvme_weights);
  update.update = tail.cpu + new_weights;
  update.write =
      written(traffic.nvme_write - traffic.nvme_gradients - traffic.nvme_weights_written);
  update.read_ahead = offload.pipeline_read;
  update.write_behind = offload.pipeline_write;
  tail.nvme = swapped_update_time(update) - tail.cpu;
  tail.nvme_weights = std::max(Seconds::zero(), read(traffic.nvme_weights) - passes);
  // Two thirds of a micro-step are backward, and the last one's gradients are written.
  const Seconds backward =
      passes * (2.0 / 3.0 / std::max(1, plan.engine.gradient_accumulation_steps));
  tail.nvme_gradients =
      std::max(written(traffic.nvme_gradients_waited), written(traffic.nvme_gradients) - backward);
  const Seconds reads = read(traffic.nvme_read);
  const Seconds writes = written(traffic.nvme_write);
  const bool pipelined = update.read_ahead || update.write_behind;
  const Seconds apart = pipelined ? Seconds::zero() : update.read + update.write + new_weights;
  tail.nvme_longest = std::max({reads, writes, apart});
  tail.nvme_in_a_row = reads + writes;
}

}  // namespace

Seconds swapped_update_time(const SwappedUpdate& update) {
  const auto n = static_cast<double>(std::max<std::int64_t>(1, update.groups));
  const Seconds r = update.read / n;
  const Seconds a = update.update / n;
  const Seconds w = update.write / n;
  if (update.read_ahead && update.write_behind) return r + a + w + std::max({r, a, w}) * (n - 1.0);
  if (update.read_ahead) return r + a + w + std::max(r, a + w) * (n - 1.0);
  if (update.write_behind) return r + a + w + std::max(r + a, w) * (n - 1.0);
  return update.read + update.update + update.write;
}

StepTail step_tail(const Plan& plan,
                   const StepTraffic& traffic,
                   const Coefficients& c,
                   Seconds passes) {
  StepTail tail;
  tail.gpu = gpu_time(plan, traffic, c);
  tail.muon = muon_time(plan, traffic, c);
  if (traffic.cpu_optimizer > Elements::zero()) {
    const Node& node = plan.cluster.node;
    const HostLoad load = host_load(node);
    tail.cpu = cpu_adam_time(cpu_adam_work(plan, traffic.cpu_optimizer), node, load, c) +
               host_pass_time({traffic.host_passes, traffic.host_pages}, node, load, c);
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
