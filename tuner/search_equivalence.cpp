#include "tuner/search_equivalence.hpp"

#include <algorithm>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/fetch_schedule.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/engine/partition.hpp"
#include "model/step/outside_passes.hpp"
#include "tuner/point_keys.hpp"

namespace zeroplan::tuner {
namespace {

class Print {
 public:
  template <typename... Values>
  void add(const Values&... values) {
    (print_.add(static_cast<std::uint64_t>(values)), ...);
  }
  void add_action(const EngineAction& action) {
    add(action.kind, action.stream, action.other, action.parameter, action.group, action.pieces);
    add(action.elements.count(), action.dtype, action.on_host, action.pinned, action.host_waits);
    add(action.keeps_source);
    const EngineCollective& sent = action.collective;
    add(sent.kind, sent.ranks, sent.root, sent.operation, sent.asynchronous, sent.in_place);
  }
  void add_actions(const EngineActions& actions) {
    add(actions.actions.size());
    for (const EngineAction& action : actions.actions) add_action(action);
    for (const int member : actions.members) add(member);
  }
  void add_sub_groups(const EngineConfig& config, const std::vector<EngineParameter>& parameters) {
    for (const SubGroup& group : sub_groups(config, parameters)) {
      add(group.group, group.parameters.size(), group.numel.count(), group.on_host);
      for (const int parameter : group.parameters) add(parameter);
    }
  }
  // What stands on the host is in no rank's program; SearchBounds::host() compares it.
  void add_buffers(const std::vector<EngineBuffer>& buffers) {
    for (const EngineBuffer& buffer : buffers) {
      if (buffer.place != BufferPlace::gpu) continue;
      add(buffer.index, buffer.second_index, buffer.name, buffer.suffix.size());
      for (const char c : buffer.suffix) add(c);
      add(buffer.bytes.count(), buffer.category, buffer.lifetime, buffer.dtype);
    }
  }

  Fingerprint take() const { return print_; }

 private:
  Fingerprint print_;
};

// All gradients in order, in the first, a middle and the last micro-step.
void add_backward(const EngineConfig& config,
                  const std::vector<EngineParameter>& parameters,
                  Print& print) {
  GradientReducer reducer(config, parameters);
  EngineActions actions;
  const int last = config.gradient_accumulation_steps - 1;
  for (const int micro_step : {0, std::min(1, last), last}) {
    actions.clear();
    reducer.begin_backward(micro_step);
    for (std::size_t p = parameters.size(); p-- > 0;) {
      if (!parameters[p].trainable || !parameters[p].used) continue;
      reducer.gradient_ready(static_cast<int>(p), actions);
    }
    reducer.end_backward(actions);
    print.add_actions(actions);
  }
}

}  // namespace

Fingerprint tail_fingerprint(const SearchSpace& space, const Point& point) {
  const Point key = reset(space, point, {KnobRole::gather, KnobRole::reduce});
  const Plan plan = space.plan(key);
  EngineConfig config = plan.engine;
  config.rank = heaviest_rank(config, plan.engine_parameters);
  Print print;
  print.add(key.strategy, key.checkpointing, key.batch, startup_refusal(plan).empty());
  // Axes of other roles may do anything.
  const std::vector<Axis>& axes = space.strategies()[static_cast<std::size_t>(key.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].role == KnobRole::other) print.add(a, key.at[a]);
  }
  if (config.stage == 3) print.add_sub_groups(config, plan.engine_parameters);
  const std::vector<EngineBuffer> buffers = engine_buffers(config, plan.engine_parameters);
  print.add_buffers(buffers);
  const OutsidePasses outside =
      outside_passes(plan, config, buffers, plan.cluster.gpu.memory.value);
  print.add(outside.load_peak.gpu.count(), outside.init_peak.gpu.count());
  add_backward(config, plan.engine_parameters, print);
  EngineActions step;
  optimizer_step(config, plan.engine_parameters, /*overflowed=*/false, step);
  print.add_actions(step);
  const bool swaps = config.offload_optimizer.device == OffloadDevice::nvme;
  const bool weights_swap = config.offload_parameter.device == OffloadDevice::nvme;
  if (config.offload_parameter.device != OffloadDevice::none) {
    print.add(config.offload_parameter.pin_memory);
  }
  if (swaps) {
    print.add(config.offload_optimizer.pipeline_read, config.offload_optimizer.pipeline_write);
  }
  if (swaps || weights_swap) {
    print.add(config.aio_block_size.count(), config.aio_parallelism, config.aio_queue_depth);
  }
  if (weights_swap) {  // what is prefetched, and whether the pool suffices
    print.add(config.offload_parameter.buffer_count);
    for (const bool away : weights_on_drive(config, plan.engine_parameters)) print.add(away);
  }
  return print.take();
}

}  // namespace zeroplan::tuner
