#include "model/predict/torch_memory.hpp"

#include <algorithm>

#include "model/predict/window_moment.hpp"
#include "model/step/fsdp_work.hpp"
#include "model/step/kernel_workspaces.hpp"

namespace zeroplan {
namespace {

constexpr MemoryCategory kParameters = MemoryCategory::parameters;
constexpr MemoryCategory kGradients = MemoryCategory::gradients;
constexpr MemoryCategory kCommunication = MemoryCategory::communication_buffers;
constexpr MemoryCategory kTemporaries = MemoryCategory::temporaries;

// The buffers of a moment with what is always there. Gradients that appear in the first backward
// pass of a window are followed by the walks.
CategoryBytes buffers_at(const Plan& plan,
                         const StepWork& work,
                         const std::vector<EngineBuffer>& buffers,
                         const WindowMoment& moment) {
  CategoryBytes bytes{};
  for (const EngineBuffer& buffer : buffers) {
    if (buffer.place != BufferPlace::gpu || !alive(buffer.lifetime, moment)) continue;
    const bool appears = buffer.category == kGradients &&
                         buffer.lifetime != BufferLifetime::resident && moment.first &&
                         moment.phase == Phase::backward;
    if (!appears) at(bytes, buffer.category) += buffer.bytes;
  }
  at(bytes, kParameters) += work.graph.buffers;
  at(bytes, kTemporaries) += kept_workspaces(plan, work.graph);
  at(bytes, MemoryCategory::activations) += work.graph.batch;
  if (plan.workload.outputs_kept && moment.phase != Phase::backward) {
    at(bytes, MemoryCategory::logits) += bytes_of_outputs(work.graph);
  }
  return bytes;
}

// A pass's own peak: activations at entry, the rise, and its weight gradients, all kept.
CategoryBytes at_rise(const ActivationStep& step, const PassRise& rise) {
  CategoryBytes bytes = step.entry;
  add(bytes, rise.without);
  at(bytes, kGradients) += std::max(Bytes::zero(), rise.keeping - rise.total);
  return bytes;
}

CategoryBytes highest(const ActivationStep& step) {
  CategoryBytes bytes = at_rise(step, step.before_gradients);
  if (step.weight_gradient_count > 0) {
    keep_larger(bytes, at_rise(step, step.from_first_gradient));
  }
  return bytes;
}

// --- FSDP ---

class FsdpWalk {
 public:
  FsdpWalk(const Plan& plan, const StepWork& work, const std::vector<EngineBuffer>& buffers)
      : plan_(plan),
        config_(plan.fsdp),
        work_(work),
        buffers_(buffers),
        fsdp_(fsdp_work(plan, work.graph)) {}

  WindowMemory run() {
    const int last = config_.gradient_accumulation_steps - 1;
    walk(0, last);
    if (last > 0) walk(last, last);
    memory_.step = buffers_at(plan_, work_, buffers_, {Phase::step, last == 0, true});
    memory_.between_steps =
        sum(buffers_at(plan_, work_, buffers_, {Phase::forward, true, last == 0}));
    return memory_;
  }

  const std::vector<FsdpUnit>& units() const { return fsdp_.units; }

 private:
  void walk(int micro_step, int last) {
    first_ = micro_step == 0;
    const WindowMoment forward{Phase::forward, first_, micro_step == last};
    const WindowMoment backward{Phase::backward, first_, micro_step == last};
    forward_ = buffers_at(plan_, work_, buffers_, forward);
    backward_ = buffers_at(plan_, work_, buffers_, backward);
    waiting_ = reduced_ = kept_gather_ = sent_ = Bytes::zero();
    next_ = 0;
    const bool reduces = fsdp_reduces(config_, micro_step);
    const auto events = fsdp_micro_step(config_, fsdp_.units, fsdp_.visits, micro_step);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const FsdpEvent& event = events[i];
      switch (event.kind) {
        case FsdpEventKind::unshard:
          gathered_ += copy_of(event.unit);
          note_offloaded_shard(event);
          break;
        case FsdpEventKind::reshard:
          gathered_ -= copy_of(event.unit);
          break;
        case FsdpEventKind::compute:
          event.backward ? run_backward(event.unit) : run_forward(event.unit);
          // Without a reduction the flat gradient stays as it is.
          if (event.backward && !reduces && is_last(events, i)) {
            keep_whole(gradient_unit(event.unit));
          }
          break;
        case FsdpEventKind::reduce_scatter:
          reduce(event.unit);
          break;
        case FsdpEventKind::all_reduce:
          if (config_.sharding == Sharding::no_shard) reduce(event.unit);
          break;
        case FsdpEventKind::rate_limit:
          break;
      }
    }
  }

  // A unit's gathered copy: the shard itself where nothing is cut or cast.
  Bytes copy_of(int unit) const {
    const bool whole = config_.sharding == Sharding::no_shard || config_.shard_ranks == 1;
    if (whole && !casts_shards(config_, unit_of(unit))) return Bytes::zero();
    return gathered_bytes(config_, unit_of(unit));
  }
  const FsdpUnit& unit_of(int unit) const { return fsdp_.units[static_cast<std::size_t>(unit)]; }
  // Where the gradients of a unit's passes belong.
  int gradient_unit(int unit) const {
    return unit_of(unit).adapters >= 0 ? unit_of(unit).adapters : unit;
  }
  // An offloaded shard is on the GPU until it is gathered.
  void note_offloaded_shard(const FsdpEvent& event) {
    if (!config_.offload) return;
    CategoryBytes bytes = event.backward ? between_passes() : forward_;
    if (!event.backward && next_ < work_.activations.steps.size()) {
      add(bytes, work_.activations.steps[next_].entry);
      at(bytes, kParameters) += gathered_;
    }
    at(bytes, kCommunication) += stored_bytes(config_, unit_of(event.unit));
    keep_larger(event.backward ? memory_.backward : memory_.forward, bytes);
  }

  bool belongs(const ActivationStep& step, int unit, bool forward) const {
    return in_forward_phase(step.pass.pass) == forward &&
           fsdp_.unit_of_instance[static_cast<std::size_t>(step.pass.instance)] == unit;
  }
  static bool is_last(const std::vector<FsdpEvent>& events, std::size_t i) {
    for (std::size_t j = i + 1; j < events.size(); ++j) {
      const FsdpEvent& other = events[j];
      if (other.kind == FsdpEventKind::compute && other.unit == events[i].unit) return false;
    }
    return true;
  }

  // The timeline's passes of a unit, from the one that comes next.
  template <typename Visit>
  void passes(int unit, bool forward, Visit&& visit) {
    const auto& steps = work_.activations.steps;
    for (; next_ < steps.size(); ++next_) {
      if (steps[next_].pass.pass == Pass::drop_outputs) continue;
      if (!belongs(steps[next_], unit, forward)) return;
      visit(steps[next_]);
    }
  }

  void run_forward(int unit) {
    // fully_shard: what was gathered lives beside its copies until the next unit's are made.
    if (config_.version == 2) kept_gather_ = copy_of(unit);
    passes(unit, true, [&](const ActivationStep& step) {
      CategoryBytes bytes = highest(step);
      add(bytes, forward_);
      at(bytes, kParameters) += gathered_ + kept_gather_;
      keep_larger(memory_.forward, bytes);
    });
  }

  void run_backward(int unit) {
    kept_gather_ = Bytes::zero();
    passes(unit, false, [&](const ActivationStep& step) {
      CategoryBytes bytes = highest(step);
      add(bytes, with_gradients());
      keep_larger(memory_.backward, bytes);
      waiting_ += step.weight_gradients;
      held_[static_cast<std::size_t>(gradient_unit(unit))] += step.weight_gradients;
    });
  }

  // Engine, gathered weights and gradients on their way, without activations.
  CategoryBytes with_gradients() const {
    CategoryBytes bytes = backward_;
    at(bytes, kParameters) += gathered_ + kept_gather_;
    at(bytes, kCommunication) += sent_;
    at(bytes, kGradients) += waiting_ + (first_ ? reduced_ : Bytes::zero());
    return bytes;
  }

  CategoryBytes between_passes() const {
    CategoryBytes bytes = with_gradients();
    const auto& steps = work_.activations.steps;
    add(bytes, next_ < steps.size() ? steps[next_].entry : work_.activations.after);
    return bytes;
  }

  // The views' gradients are concatenated to that of the flat parameter (autograd's split), which
  // is cast, padded and scattered (_runtime_utils.py _reduce_grad).
  void reduce(int unit) {
    const FsdpUnit& u = unit_of(unit);
    const Bytes views = std::exchange(held_[static_cast<std::size_t>(unit)], Bytes::zero());
    if (config_.version == 2) {
      reduce_parameters(u, views);
      return;
    }
    const DType computed = computed_dtype(config_, u), reduced = reduced_dtype(config_, u);
    const Bytes flat = u.numel * computed;
    CategoryBytes bytes = between_passes();
    at(bytes, kGradients) += flat;
    keep_larger(memory_.backward, bytes);
    waiting_ -= views;
    bytes = between_passes();
    at(bytes, kGradients) += flat;
    const bool copies = reduced != computed || u.padded != u.numel;
    if (copies) at(bytes, kCommunication) += u.padded * reduced;
    if (config_.sharding != Sharding::no_shard) at(bytes, kCommunication) += u.shard * reduced;
    keep_larger(memory_.backward, bytes);
    if (!config_.offload) reduced_ += u.shard * stored_dtype(config_, u);
  }

  // foreach_reduce: the gradients are copied into one message, which lives until the next unit's.
  void reduce_parameters(const FsdpUnit& u, Bytes gradients) {
    const DType reduced = reduced_dtype(config_, u), stored = stored_dtype(config_, u);
    sent_ = u.reduced * reduced;
    keep_larger(memory_.backward, between_passes());
    waiting_ -= gradients;
    CategoryBytes bytes = between_passes();
    at(bytes, kCommunication) += u.owned * reduced;
    if (reduced != stored) at(bytes, kGradients) += u.owned * stored;
    keep_larger(memory_.backward, bytes);
    if (!config_.offload) reduced_ += u.owned * stored;
  }

  void keep_whole(int unit) {
    const FsdpUnit& u = unit_of(unit);
    if (!u.trains || config_.version == 2) return;
    CategoryBytes bytes = between_passes();
    at(bytes, kGradients) += u.numel * computed_dtype(config_, u);
    keep_larger(memory_.backward, bytes);
    waiting_ -= std::exchange(held_[static_cast<std::size_t>(unit)], Bytes::zero());
    reduced_ += u.padded * computed_dtype(config_, u);
  }

  const Plan& plan_;
  const FsdpConfig& config_;
  const StepWork& work_;
  const std::vector<EngineBuffer>& buffers_;
  FsdpWork fsdp_;
  std::vector<Bytes> held_ = std::vector<Bytes>(fsdp_.units.size());
  WindowMemory memory_;

  // Of the micro-step being walked.
  CategoryBytes forward_{};
  CategoryBytes backward_{};
  bool first_ = true;
  std::size_t next_ = 0;
  Bytes gathered_;
  Bytes waiting_;  // gradients of views, before their unit's reduction
  Bytes reduced_;  // gradients that stay
  // fully_shard: the last message of a gather in forward, and of a reduction.
  Bytes kept_gather_, sent_;
};

Bytes largest_unit(const std::vector<FsdpUnit>& units, std::int64_t width_of_element) {
  Bytes largest;
  for (const FsdpUnit& unit : units) {
    if (unit.block >= 0) largest = std::max(largest, unit.padded.times_width(width_of_element));
  }
  return largest;
}

CategoryBytes held_after(const std::vector<EngineBuffer>& buffers, EngineMoment moment, int steps) {
  CategoryBytes bytes{};
  for (const EngineBuffer& buffer : buffers) {
    if (buffer.place != BufferPlace::gpu) continue;
    if (exists(buffer.lifetime, moment, steps)) at(bytes, buffer.category) += buffer.bytes;
  }
  return bytes;
}

// Blocks are moved to the GPU, flattened and cut one after the other, the root last; saving gathers
// them again one by one in the shards' dtype, beside the root, to the host of rank 0
// (_state_dict_utils.py, FullStateDictConfig(offload_to_cpu, rank0_only)).
OutsidePasses fsdp_outside(const Plan& plan,
                           const std::vector<FsdpUnit>& units,
                           const std::vector<EngineBuffer>& buffers) {
  const FsdpConfig& config = plan.fsdp;
  const int steps = config.gradient_accumulation_steps;
  const std::int64_t stored = width(config.storage_dtype);
  const Bytes root = units.front().padded.times_width(stored);
  const Bytes block = largest_unit(units, stored);
  OutsidePasses outside;
  outside.init = held_after(buffers, EngineMoment::initialised, steps);
  at(outside.init, kTemporaries) += std::max(block, root);
  outside.load = outside.init;
  if (plan.loads_whole) {
    outside.load = {};
    for (const EngineParameter& parameter : plan.engine_parameters) {
      at(outside.load, kParameters) += whole_bytes(config, parameter);
    }
    // The first unit's shard stands beside all of it.
    outside.init = outside.load;
    at(outside.init, kTemporaries) += block;
  }
  outside.save = held_after(buffers, EngineMoment::after_step, steps);
  at(outside.save, kParameters) += block + root;
  outside.step_temporaries = fsdp_step_temporaries(config, units, plan.engine_parameters);
  Elements all;
  for (const FsdpUnit& unit : units) all += unit.numel;
  outside.host_save = all.times_width(stored);
  return outside;
}

// --- DDP ---

WindowMemory ddp_window(const Plan& plan,
                        const StepWork& work,
                        const std::vector<EngineBuffer>& buffers) {
  const DdpConfig& config = plan.ddp;
  const int last = config.gradient_accumulation_steps - 1;
  // Autocast's copy of a weight lives in its cache and in autograd's nodes until the weight's
  // backward pass (aten/src/ATen/autocast_mode.cpp cached_cast).
  const Bytes casts = autocast_copies(work.graph) * config.compute_dtype;
  const ActivationTimeline& timeline = work.activations;
  WindowMemory memory;
  for (const int micro_step : {0, last}) {
    const bool first = micro_step == 0;
    const WindowMoment forward{Phase::forward, first, micro_step == last};
    const WindowMoment backward{Phase::backward, first, micro_step == last};
    const CategoryBytes in_forward = buffers_at(plan, work, buffers, forward);
    const CategoryBytes in_backward = buffers_at(plan, work, buffers, backward);
    Bytes done;
    for (const ActivationStep& step : timeline.steps) {
      if (step.pass.pass == Pass::drop_outputs) continue;
      const bool is_forward = in_forward_phase(step.pass.pass);
      CategoryBytes bytes = highest(step);
      add(bytes, is_forward ? in_forward : in_backward);
      at(bytes, kParameters) += casts;
      if (first) at(bytes, kGradients) += done;
      keep_larger(is_forward ? memory.forward : memory.backward, bytes);
      done += step.weight_gradients;
    }
  }
  memory.step = buffers_at(plan, work, buffers, {Phase::step, last == 0, true});
  memory.between_steps = sum(buffers_at(plan, work, buffers, {Phase::forward, true, last == 0}));
  return memory;
}

// The module is moved as a whole; rank 0's weights are broadcast in pieces of 250 MiB
// (distributed.py broadcast_bucket_size).
OutsidePasses ddp_outside(const Plan& plan, const std::vector<EngineBuffer>& buffers) {
  const DdpConfig& config = plan.ddp;
  const int steps = config.gradient_accumulation_steps;
  OutsidePasses outside;
  outside.init = held_after(buffers, EngineMoment::initialised, steps);
  const Bytes weights = ddp_weight_bytes(config, plan.engine_parameters);
  if (config.ranks > 1) at(outside.init, kTemporaries) += std::min(weights, Bytes::mib(250));
  at(outside.load, kParameters) = weights;
  outside.save = held_after(buffers, EngineMoment::after_step, steps);
  outside.step_temporaries = ddp_step_temporaries(config, plan.engine_parameters);
  return outside;
}

}  // namespace

TorchEngineMemory torch_engine_memory(const Plan& plan, const StepWork& work) {
  TorchEngineMemory memory;
  if (plan.workload.engine == TrainingEngine::ddp) {
    memory.buffers = ddp_buffers(plan.ddp, plan.engine_parameters);
    memory.window = ddp_window(plan, work, memory.buffers);
    memory.outside = ddp_outside(plan, memory.buffers);
    return memory;
  }
  const std::vector<FsdpUnit> units =
      fsdp_units(plan.fsdp, plan.engine_parameters, plan.wrapped_block);
  memory.buffers = fsdp_buffers(plan.fsdp, units);
  memory.window = FsdpWalk(plan, work, memory.buffers).run();
  memory.outside = fsdp_outside(plan, units, memory.buffers);
  // limit_all_gathers lets the gather of one unit run ahead of the computation; its block and that
  // of the unit just freed belong to two streams (_limiter_utils.py, two free events).
  if (plan.fsdp.sharding == Sharding::full && plan.fsdp.shard_ranks > 1) {
    memory.deferred = largest_unit(units, width(plan.fsdp.compute_dtype));
  }
  return memory;
}

}  // namespace zeroplan
