// Traffic of FSDP and DDP.
#include "model/predict/step_traffic.hpp"
#include "model/step/fsdp_work.hpp"

namespace zeroplan {
namespace {

// Turns FSDP's events into tasks; compute events take the graph's passes of their unit.
class FsdpTasks {
 public:
  FsdpTasks(const Plan& plan, const StepWork& work, StepTraffic& traffic)
      : plan_(plan), config_(plan.fsdp), work_(work), traffic_(traffic) {}

  MicroStep micro_step(const FsdpWork& fsdp, int number) {
    MicroStep result;
    next_ = 0;
    const auto events = fsdp_micro_step(config_, fsdp.units, fsdp.visits, number);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const FsdpEvent& event = events[i];
      const FsdpUnit& unit = fsdp.units[static_cast<std::size_t>(event.unit)];
      switch (event.kind) {
        case FsdpEventKind::compute:
          add_passes(fsdp, event, result.tasks);
          break;
        case FsdpEventKind::unshard:
          add_gather(event, unit, is_ahead(events, i), result.tasks);
          break;
        case FsdpEventKind::reduce_scatter:
        case FsdpEventKind::all_reduce:
          add_reduction(event, unit, result.tasks);
          break;
        case FsdpEventKind::reshard:
        case FsdpEventKind::rate_limit:
          break;
      }
    }
    return result;
  }

 private:
  void add_passes(const FsdpWork& fsdp, const FsdpEvent& event, std::vector<StepTask>& tasks) {
    const auto& steps = work_.activations.steps;
    bool first = true;  // of the unit's passes: recomputation comes before backward
    for (; next_ < steps.size(); ++next_) {
      const PassStep& pass = steps[next_].pass;
      if (pass.pass == Pass::drop_outputs) continue;
      const int unit = fsdp.unit_of_instance[static_cast<std::size_t>(pass.instance)];
      if (unit != event.unit || in_forward_phase(pass.pass) == event.backward) return;
      StepTask task;
      task.pass = static_cast<std::int32_t>(next_);
      task.takes_ahead = first;
      first = false;
      tasks.push_back(task);
    }
  }

  // Gathered for a unit other than the one that computes next?
  static bool is_ahead(const std::vector<FsdpEvent>& events, std::size_t i) {
    for (std::size_t j = i + 1; j < events.size(); ++j) {
      if (events[j].kind == FsdpEventKind::compute) return events[j].unit != events[i].unit;
    }
    return false;
  }

  void add_gather(const FsdpEvent& event,
                  const FsdpUnit& unit,
                  bool ahead,
                  std::vector<StepTask>& tasks) {
    StepTask task;
    task.kind = StepTaskKind::gather;
    task.ahead = ahead;
    // The shard is cast before it is sent; a whole copy is cast, too.
    if (casts_shards(config_, unit)) {
      task.copied_before = stored_bytes(config_, unit) + cast_bytes(config_, unit);
    }
    if (config_.offload) {
      task.from_host = stored_bytes(config_, unit);
      traffic_.host_to_device += task.from_host;
    }
    const bool copies = task.copied_before > Bytes::zero() || config_.offload;
    if (event.ranks <= 1 && !copies) return;
    const Bytes bytes = event.bytes;
    (event.backward ? traffic_.all_gather_backward : traffic_.all_gather_forward) += bytes;
    add_messages(Collective::all_gather, bytes, event.ranks, unit, task, tasks);
  }

  // Adapters that are wrapped one by one send a message each: the first is the task's own.
  void add_messages(Collective kind,
                    Bytes bytes,
                    int ranks,
                    const FsdpUnit& unit,
                    StepTask task,
                    std::vector<StepTask>& tasks) {
    const Bytes each = Bytes::of(ceil_div(bytes.count(), unit.messages));
    task.message = traffic_.message({kind, each, plan_.layout().shard_group(ranks)});
    for (int i = 0; i < unit.messages; ++i) {
      tasks.push_back(task);
      task.copied_before = task.copied_beside = task.from_host = Bytes::zero();
      ++traffic_.collectives;
    }
  }

  // The views' gradients are concatenated by autograd, then cast (torch_memory.cpp has the same).
  void add_reduction(const FsdpEvent& event, const FsdpUnit& unit, std::vector<StepTask>& tasks) {
    StepTask task;
    task.kind = StepTaskKind::reduce;
    const Bytes bytes = event.bytes;
    const bool scatters = event.kind == FsdpEventKind::reduce_scatter;
    const bool first = scatters || config_.sharding == Sharding::no_shard;
    const std::int64_t computed = width(computed_dtype(config_, unit));
    if (first) {
      task.copied_beside = unit.numel.times_width(2 * computed);
      if (event.dtype != computed_dtype(config_, unit)) {
        task.copied_before = unit.padded.times_width(computed + width(event.dtype));
      }
    }
    if (config_.offload && first) {
      traffic_.device_to_host += stored_bytes(config_, unit);
    }
    if (first && unit.messages > 1) {
      (scatters ? traffic_.reduce_scatter : traffic_.all_reduce) += bytes;
      const Collective kind = scatters ? Collective::reduce_scatter : Collective::all_reduce;
      add_messages(kind, bytes, event.ranks, unit, task, tasks);
      return;
    }
    const CollectiveGroup group = first ? plan_.layout().shard_group(event.ranks)
                                        : plan_.layout().group_across_shards(event.ranks);
    task.message = traffic_.message(
        {scatters ? Collective::reduce_scatter : Collective::all_reduce, bytes, group});
    (scatters ? traffic_.reduce_scatter : traffic_.all_reduce) += bytes;
    ++traffic_.collectives;
    tasks.push_back(task);
  }

  const Plan& plan_;
  const FsdpConfig& config_;
  const StepWork& work_;
  StepTraffic& traffic_;
  std::size_t next_ = 0;
};

void add_torch_times(const StepTraffic& part, std::int64_t times, StepTraffic& sum) {
  sum.all_reduce += part.all_reduce * times;
  sum.reduce_scatter += part.reduce_scatter * times;
  sum.all_gather_forward += part.all_gather_forward * times;
  sum.all_gather_backward += part.all_gather_backward * times;
  sum.collectives += part.collectives * times;
  sum.host_to_device += part.host_to_device * times;
  sum.device_to_host += part.device_to_host * times;
}

}  // namespace

StepTraffic fsdp_traffic(const Plan& plan, const StepWork& work) {
  const FsdpWork fsdp = fsdp_work(plan, work.graph);
  const int last = plan.fsdp.gradient_accumulation_steps - 1;
  StepTraffic traffic;
  traffic.overlaps = true;
  const auto window = [&](int number, std::int64_t count) {
    if (count == 0) return;
    StepTraffic part;
    part.messages = traffic.messages;
    MicroStep micro = FsdpTasks(plan, work, part).micro_step(fsdp, number);
    micro.count = count;
    traffic.messages = part.messages;
    traffic.windows.push_back(std::move(micro));
    add_torch_times(part, count, traffic);
  };
  // The first, those between, and the last are all that may differ.
  const bool alike = plan.fsdp.reduces_every_micro_step;
  const bool first_gathers = !alike && last > 1 && fsdp_keeps_gathered(plan.fsdp, 0);
  if (first_gathers) window(0, 1);
  window(first_gathers ? 1 : 0, alike ? 0 : last - (first_gathers ? 1 : 0));
  window(last, alike ? last + 1 : 1);
  (plan.fsdp.offload ? traffic.cpu_optimizer : traffic.gpu_optimizer) = fsdp_owned(fsdp.units);
  return traffic;
}

// Under autocast each forward pass of a block casts its weights once (aten/src/ATen/
// autocast_mode.cpp cached_cast); that their gradients are cast back is in the graph.
Bytes autocast_casts(const Plan& plan, const ModelGraph& graph, const PassStep& pass) {
  if (pass.pass == Pass::backward) return Bytes::zero();
  const Elements copied =
      autocast_copies(graph, graph.instances[static_cast<std::size_t>(pass.instance)]);
  return copied * trained_dtype(plan.engine_parameters, plan.ddp.weight_dtype) +
         copied * plan.ddp.compute_dtype;
}

// Gradients are copied into their bucket and, unless they are views of it, back (reducer.cpp
// mark_variable_ready_dense, finalize_bucket_dense).
StepTraffic ddp_traffic(const Plan& plan, const StepWork& work) {
  const std::int64_t G = plan.ddp.gradient_accumulation_steps;
  StepTraffic traffic;
  traffic.overlaps = true;
  const DType trained = trained_dtype(plan.engine_parameters, plan.ddp.weight_dtype);
  const auto buckets =
      ddp_buckets(plan.ddp, plan.engine_parameters, work.activations.gradient_order);
  const auto window = [&](bool reduces, std::int64_t count) {
    MicroStep micro;
    micro.count = count;
    std::size_t arrived = 0, bucket = 0, complete = 0;
    const auto& steps = work.activations.steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].pass.pass == Pass::drop_outputs) continue;
      StepTask compute;
      compute.pass = static_cast<std::int32_t>(i);
      compute.copied_beside = autocast_casts(plan, work.graph, steps[i].pass);
      micro.tasks.push_back(compute);
      arrived += static_cast<std::size_t>(steps[i].weight_gradient_count);
      for (; reduces && bucket < buckets.size(); ++bucket) {
        complete += buckets[bucket].parameters.size();
        if (complete > arrived) {
          complete -= buckets[bucket].parameters.size();
          break;
        }
        const Bytes bytes = buckets[bucket].numel * trained;
        StepTask task;
        task.kind = StepTaskKind::reduce;
        task.copied_beside = bytes * (plan.ddp.gradient_as_bucket_view ? 0 : 4);
        task.message = traffic.message(
            {Collective::all_reduce, bytes, plan.layout().shard_group(plan.ddp.ranks)});
        micro.tasks.push_back(task);
        traffic.all_reduce += bytes;
        ++traffic.collectives;
      }
    }
    traffic.windows.push_back(std::move(micro));
  };
  if (G > 1) window(false, G - 1);
  window(true, 1);
  for (const EngineParameter& parameter : plan.engine_parameters) {
    if (parameter.trainable) traffic.gpu_optimizer += parameter.numel;
  }
  return traffic;
}

}  // namespace zeroplan
