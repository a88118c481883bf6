#include "model/predict/step_traffic.hpp"

#include <algorithm>
#include <optional>

#include "model/engine/action_work.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/engine/partition.hpp"
#include "model/engine/swapping.hpp"
#include "model/step/engine_collective.hpp"

namespace zeroplan {
namespace {

// MiCS adds up its shards across the copies; all other groups are contiguous.
CollectiveGroup group_of(const Plan& plan, const EngineCollective& collective) {
  const std::int64_t shard = plan.engine.stage3.mics_shard_size;
  const bool across =
      plan.engine.stage == 3 && shard > 0 && collective.kind == CollectiveKind::all_reduce;
  const ParallelLayout layout = plan.layout();
  return across ? layout.group_across_shards(collective.ranks)
                : layout.shard_group(collective.ranks);
}

// The message of a collective, -1 for a barrier; its volume joins the sums.
std::int32_t add_collective(const Plan& plan,
                            const EngineAction& action,
                            bool in_step,
                            StepTraffic& traffic) {
  const Bytes message = action.elements * action.dtype;
  switch (action.collective.kind) {
    case CollectiveKind::all_reduce:
      traffic.all_reduce += message;
      break;
    case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all:
      traffic.reduce_scatter += message;
      break;
    case CollectiveKind::all_gather:
    case CollectiveKind::broadcast:
      (in_step ? traffic.all_gather_step : traffic.all_gather_backward) += message;
      break;
    case CollectiveKind::barrier:
      break;
  }
  ++traffic.collectives;
  const auto kind = collective_of(action.collective.kind);
  if (!kind) return -1;
  return traffic.message({*kind, message, group_of(plan, action.collective)});
}

void count_after(std::int32_t message, StepTraffic& traffic) {
  if (message < 0) return;
  for (MessageCount& known : traffic.after) {
    if (known.message != message) continue;
    ++known.count;
    return;
  }
  traffic.after.push_back({message, 1});
}

void add_muon_update(const EngineAction& action, StepTraffic& traffic) {
  for (MuonUpdates& known : traffic.muon_updates) {
    if (known.matrices != action.matrices) continue;
    ++known.count;
    return;
  }
  traffic.muon_updates.push_back({action.matrices, action.dtype, 1});
}

// What an action moves, beside its kernels and its message.
void add_work(const EngineAction& action, const ActionWork& work, StepTraffic& traffic) {
  switch (work.kind) {
    case WorkKind::host_pass:
      traffic.host_passes += work.bytes;
      traffic.host_pages += work.new_pages;
      break;
    case WorkKind::gpu_update:
      traffic.gpu_optimizer += work.updated;
      break;
    case WorkKind::muon_update:
      add_muon_update(action, traffic);
      break;
    case WorkKind::muon_addition:
      traffic.muon_additions += work.updated;
      break;
    case WorkKind::cpu_update:
      traffic.cpu_optimizer += work.updated;
      break;
    case WorkKind::copy_to_host:  // also behind every gradient_to_master
      traffic.device_to_host += work.bytes;
      if (!action.pinned) traffic.device_to_host_pageable += work.bytes;
      break;
    case WorkKind::copy_to_device:
      (action.pinned ? traffic.host_to_device : traffic.host_to_device_pageable) += work.bytes;
      break;
    case WorkKind::nvme_read:
      traffic.nvme_read += work.bytes;
      ++traffic.nvme_groups;
      break;
    case WorkKind::nvme_write:
      traffic.nvme_write += work.bytes;
      if (action.kind == ActionKind::swap_out_weights) {
        traffic.nvme_weights_written += work.bytes;
      } else if (action.group < 0) {
        traffic.nvme_gradients += work.bytes;
        if (action.host_waits) traffic.nvme_gradients_waited += work.bytes;
      }
      break;
    case WorkKind::kernels:
    case WorkKind::none:
      break;
  }
}

// `tasks`: where the collectives of a micro-step go; null in the optimizer step.
void add_actions(const Plan& plan,
                 const EngineActions& actions,
                 std::vector<StepTask>* tasks,
                 StepTraffic& traffic) {
  Bytes copied;  // by kernels since the last collective
  for (const EngineAction& action : actions.actions) {
    const ActionWork work = action_work(plan.engine, action);
    add_work(action, work, traffic);
    switch (action.kind) {
      case ActionKind::collective: {
        const std::int32_t message = add_collective(plan, action, tasks == nullptr, traffic);
        if (tasks == nullptr) {
          count_after(message, traffic);
        } else if (message >= 0) {
          StepTask task;
          task.kind = StepTaskKind::reduce;
          task.message = message;
          task.copied_before = copied;
          tasks->push_back(task);
          copied = Bytes::zero();
        }
        break;
      }
      case ActionKind::flatten:
      case ActionKind::concatenate:
      case ActionKind::cast:
      case ActionKind::divide:
        copied += work.bytes;
        break;
      case ActionKind::overflow_scan:
        if (action.in_step && action.host_waits) ++traffic.waited_scans;
        break;
      default:
        break;
    }
  }
}

// Modules that a pass enters or leaves. Those around all blocks are left out.
std::int32_t module_events(const ModelGraph& graph, const PassStep& pass) {
  const BlockInstance& instance = graph.instances[static_cast<std::size_t>(pass.instance)];
  std::int32_t count = 0;
  for (const Event& event : graph.block_of(instance).of(pass.pass)) {
    count += event.kind == EventKind::module_enter || event.kind == EventKind::module_exit ? 1 : 0;
  }
  return count;
}

// One micro-step: the passes of the graph with the gathers and reductions that DeepSpeed issues in
// each of them.
MicroStep micro_step(const Plan& plan,
                     const StepWork& work,
                     GradientReducer& reducer,
                     int index,
                     StepTraffic& traffic) {
  const ActivationTimeline& timeline = work.activations;
  MicroStep result;
  EngineActions actions;
  std::size_t next_gradient = 0;
  auto gather = work.gathers.messages.begin();
  const bool offloads = plan.engine.offload_parameter.device != OffloadDevice::none;
  reducer.begin_backward(index);
  for (std::size_t i = 0; i < timeline.steps.size(); ++i) {
    const ActivationStep& step = timeline.steps[i];
    for (; gather != work.gathers.messages.end() && gather->step <= static_cast<std::int32_t>(i);
         ++gather) {
      StepTask task;
      task.kind = StepTaskKind::gather;
      task.ahead = gather->ahead;
      const Bytes bytes = gather->elements * plan.engine.model_dtype;
      task.message = traffic.message(
          {Collective::all_gather, bytes, plan.layout().shard_group(gather->ranks)});
      if (offloads) task.from_host = bytes / partition_ranks(plan.engine);
      result.tasks.push_back(task);
    }
    if (step.pass.pass == Pass::drop_outputs) continue;
    StepTask compute;
    compute.pass = static_cast<std::int32_t>(i);
    if (plan.engine.stage == 3) compute.module_hooks = module_events(work.graph, step.pass);
    if (plan.engine.stage > 0) compute.gradient_hooks = step.weight_gradient_count;
    result.tasks.push_back(compute);
    actions.clear();
    for (std::int32_t k = 0; k < step.weight_gradient_count; ++k) {
      reducer.gradient_ready(timeline.gradient_order[next_gradient++], actions);
    }
    add_actions(plan, actions, &result.tasks, traffic);
  }
  actions.clear();
  reducer.end_backward(actions);
  add_actions(plan, actions, &result.tasks, traffic);
  return result;
}

void add_times(const StepTraffic& part, std::int64_t times, StepTraffic& sum) {
  sum.all_reduce += part.all_reduce * times;
  sum.reduce_scatter += part.reduce_scatter * times;
  sum.all_gather_backward += part.all_gather_backward * times;
  sum.collectives += part.collectives * times;
  sum.device_to_host += part.device_to_host * times;
  sum.device_to_host_pageable += part.device_to_host_pageable * times;
  sum.cpu_optimizer += part.cpu_optimizer * times;
  sum.host_passes += part.host_passes * times;
  sum.host_pages += part.host_pages * times;
  sum.gpu_optimizer += part.gpu_optimizer * times;
  for (MuonUpdates update : part.muon_updates) {
    update.count *= times;
    sum.muon_updates.push_back(update);
  }
  sum.host_to_device += part.host_to_device * times;
  sum.host_to_device_pageable += part.host_to_device_pageable * times;
  sum.nvme_read += part.nvme_read * times;
  sum.nvme_write += part.nvme_write * times;
  sum.nvme_gradients += part.nvme_gradients * times;
  sum.nvme_gradients_waited += part.nvme_gradients_waited * times;
}

// Micro-steps between the first and the last are alike: one of them stands for all.
void add_micro_steps(const Plan& plan, const StepWork& work, StepTraffic& traffic) {
  GradientReducer reducer(plan.engine, plan.engine_parameters);
  reducer.update_for_busiest_owner();
  const int G = plan.engine.gradient_accumulation_steps;
  const auto window = [&](int index, std::int64_t count) {
    StepTraffic part;
    part.messages = std::move(traffic.messages);
    MicroStep micro = micro_step(plan, work, reducer, index, part);
    micro.count = count;
    traffic.messages = std::move(part.messages);
    traffic.windows.push_back(std::move(micro));
    add_times(part, count, traffic);
  };
  window(0, 1);
  if (G > 2) window(1, G - 2);
  if (G > 1) window(G - 1, 1);
  if (plan.engine.stage == 3) traffic.host_events += traffic.collectives;
}

// What the step reads of the weights that live on the drive, for its gathers. The rank's own.
Bytes weights_read(const Plan& plan, const GatherTimeline& gathers) {
  const EngineConfig& config = plan.engine;
  const std::vector<EngineParameter>& parameters = plan.engine_parameters;
  const ParameterSwap swap = parameter_swap(config, parameters, sub_groups(config, parameters));
  Elements elements;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::int64_t times =
        std::int64_t{gathers.brought[p]} * config.gradient_accumulation_steps +
        gathers.brought_in_step[p];
    elements += swap.read[p] * times;
  }
  return elements * config.model_dtype;
}

// Weights offloaded to the host come over the bus for every gather: b / N of each gathered element.
void add_gathers(const Plan& plan, const GatherTimeline& gathers, StepTraffic& traffic) {
  const std::int64_t G = plan.engine.gradient_accumulation_steps;
  const DType dtype = plan.engine.model_dtype;
  traffic.all_gather_forward += gathers.forward.collective_elements * dtype * G;
  traffic.all_gather_backward += gathers.backward.collective_elements * dtype * G;
  const std::int64_t calls = (gathers.forward.collectives + gathers.backward.collectives) * G;
  traffic.collectives += calls;
  traffic.host_events += calls;
  const Bytes own = (gathers.forward.gathered + gathers.backward.gathered) * dtype * G /
                    partition_ranks(plan.engine);
  switch (plan.engine.offload_parameter.device) {
    case OffloadDevice::none:
      break;
    case OffloadDevice::nvme:
      traffic.nvme_weights = weights_read(plan, gathers);
      traffic.nvme_read += traffic.nvme_weights;
      traffic.host_to_device += own;
      break;
    case OffloadDevice::cpu:
      traffic.host_to_device += own;
      break;
  }
}

}  // namespace

std::int32_t StepTraffic::message(const Message& wanted) {
  const auto same = [&](const Message& known) {
    return known.kind == wanted.kind && known.bytes == wanted.bytes &&
           known.group.ranks_per_node == wanted.group.ranks_per_node &&
           known.group.nodes == wanted.group.nodes &&
           known.group.concurrent == wanted.group.concurrent;
  };
  const auto found = std::find_if(messages.rbegin(), messages.rend(), same);
  if (found != messages.rend()) {
    return static_cast<std::int32_t>(messages.rend() - found) - 1;
  }
  messages.push_back(wanted);
  return static_cast<std::int32_t>(messages.size()) - 1;
}

StepTraffic step_traffic(const Plan& plan, const StepWork& work) {
  if (plan.workload.engine == TrainingEngine::fsdp) return fsdp_traffic(plan, work);
  if (plan.workload.engine == TrainingEngine::ddp) return ddp_traffic(plan, work);
  StepTraffic traffic;
  traffic.overlaps = plan.engine.overlap_comm && plan.engine.stage > 0;
  add_micro_steps(plan, work, traffic);
  if (plan.engine.stage == 3) add_gathers(plan, work.gathers, traffic);
  EngineActions step;
  optimizer_step(plan.engine, plan.engine_parameters, false, step);
  add_actions(plan, step, nullptr, traffic);
  return traffic;
}

}  // namespace zeroplan
