#include "tuner/search_bounds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "model/check.hpp"
#include "model/cost/coefficients.hpp"
#include "model/engine/fetch_coordinator.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/engine/swapping.hpp"
#include "model/implementations/implementations.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/predict/graph_options.hpp"
#include "model/predict/job_time.hpp"
#include "model/predict/module_walk.hpp"
#include "model/predict/kernel_workspaces.hpp"
#include "model/predict/step_memory.hpp"
#include "model/predict/step_traffic.hpp"
#include "simulator/engines/deepspeed_writer.hpp"
#include "simulator/task_table.hpp"
#include "tuner/knob_effect.hpp"
#include "tuner/message_sum.hpp"
#include "tuner/point_keys.hpp"
#include "tuner/search_bounds_cache.hpp"
#include "tuner/step_lower_bound.hpp"

namespace zeroplan {
namespace {

// Times are sums of floats in another order than the simulator's.
constexpr double kRounding = 1e-6;

// By parameter: what every choice of the tail's axes reads of it from NVMe for a gather. Less is
// read the more stays in host memory; where the sizes of sub-groups are searched, as if each weight
// were one alone: a sub-group stays in memory only if its last weight has room.
std::vector<Elements> fewest_reads(const SearchSpace& space,
                                   const Point& point,
                                   const std::vector<EngineParameter>& parameters,
                                   EngineConfig config) {
  if (config.offload_parameter.device != OffloadDevice::nvme) return {};
  for (const Axis& axis : space.strategies()[static_cast<std::size_t>(point.strategy)].axes) {
    if (axis.knob == Knob::sub_group_size && axis.values.size() > 1) {
      config.stage3.sub_group_size = Elements::of(1);
    }
    if (axis.knob != Knob::offload_param_max_in_cpu) continue;
    for (const KnobValue& value : axis.values) {
      const std::int64_t* most = std::get_if<std::int64_t>(&value);
      if (most == nullptr) continue;
      config.offload_parameter.max_in_cpu =
          std::max(config.offload_parameter.max_in_cpu, Elements::of(*most));
    }
  }
  return parameter_swap(config, parameters, sub_groups(config, parameters)).read;
}

// Of the tail's axes those that say which weights are on NVMe and how far they are read ahead:
// there they decide what is prefetched.
bool decides_drive(const SearchSpace& space, const Point& point, const Axis& axis) {
  const StrategySpace& all = space.strategies()[static_cast<std::size_t>(point.strategy)];
  if (all.strategy.offload_parameter != OffloadDevice::nvme) return false;
  return axis.knob == Knob::offload_param_max_in_cpu ||
         axis.knob == Knob::offload_param_buffer_count || axis.knob == Knob::sub_group_size ||
         axis.knob == Knob::aio_block_size;
}

// Seconds of kernels that follow a micro-batch's last gradient.
double behind_gradients(const ModelGraph& graph, TaskTable& tasks, const Program& program) {
  double seconds = 0.0;
  const std::vector<PassStep> steps = micro_batch(graph);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const BlockInstance& instance = graph.instances[static_cast<std::size_t>(step->instance)];
    const Block& block = graph.block_of(instance);
    const auto& events = block.of(step->pass);
    for (auto event = events.rbegin(); event != events.rend(); ++event) {
      const auto index = static_cast<std::size_t>(event->index);
      if (event->kind == EventKind::weight_gradient && block.weight_gradients[index].complete) {
        return seconds;
      }
      if (event->kind != EventKind::operation) continue;
      const TaskIndex task = tasks.operation(block, block.operations[index], step->pass);
      seconds += program.tasks[static_cast<std::size_t>(task)].duration.seconds();
    }
  }
  return seconds;
}

bool is_sent(const EngineAction& action) {
  return action.kind == ActionKind::collective && action.collective.kind != CollectiveKind::barrier;
}

// The index of the last that is sent; of no action where none is.
std::size_t last_collective(const EngineActions& actions) {
  std::size_t i = actions.actions.size();
  while (i > 0 && !is_sent(actions.actions[i - 1])) --i;
  return i > 0 ? i - 1 : actions.actions.size();
}

// Does the optimizer's step begin when all gradients are reduced? Stages 1 to 3 wait for their
// streams when the backward pass ends (GradientReducer::end_backward); weights that were gathered
// have been waited for by the kernels that use them.
bool awaits_reductions(const EngineConfig& config) { return has_zero_wrapper(config); }

// The order in which a micro-batch completes its gradients.
std::vector<std::int32_t> gradients_of(const ModelGraph& graph) {
  return activation_timeline(graph).gradient_order;
}

}  // namespace

SearchBounds::SearchBounds(const SearchSpace& space, const PredictOptions& options)
    : space_(space), options_(options), cache_(std::make_unique<BoundsCache>()) {
  const std::vector<StrategySpace>& all = space.strategies();
  for (const StrategySpace& one : all) {
    const auto first = std::find_if(all.begin(), all.end(), [&](const StrategySpace& other) {
      return gather_alike(other, one);
    });
    cache_->gathers_alike.push_back(static_cast<std::int32_t>(first - all.begin()));
  }
}

SearchBounds::~SearchBounds() = default;

// --- parts

const BoundsHead& SearchBounds::head(const Point& point) const {
  // Accumulation and knobs of engines do not change the graph; stage 3 and other axes may.
  const Point key =
      with_first_batch(space_,
                       reset(space_, point, {AxisRole::tail, AxisRole::gather, AxisRole::reduce}),
                       /*same_micro_batch=*/true);
  return known(cache_->heads, key, [&] {
    const Plan plan = space_.plan(key);
    const ModelGraph longest = build_graph(*plan.model, graph_options(plan));
    // Time is that of the mean step, memory that of the longest sequences.
    const std::optional<Plan> mean = mean_step_plan(plan);
    const Plan& timed = mean ? *mean : plan;
    std::optional<ModelGraph> shorter;
    if (mean) shorter = build_graph(*mean->model, graph_options(*mean));
    const ModelGraph& graph = shorter ? *shorter : longest;
    Program program;
    ProgramWriter writer(program);
    TaskTable tasks(timed, writer);
    BoundsHead head;
    const auto seconds_of = [&](const Block& block, Pass pass) {
      BoundsHead sum;
      for (const Event& event : block.of(pass)) {
        if (event.kind != EventKind::operation) continue;
        const Operation& operation = block.operations[static_cast<std::size_t>(event.index)];
        const Task& task =
            program.tasks[static_cast<std::size_t>(tasks.operation(block, operation, pass))];
        const double seconds = task.duration.seconds();
        sum.busy += seconds;
        if (task.demands == Demands{}) sum.neutral += seconds;
        const auto memory = static_cast<std::size_t>(SharedResource::gpu_memory);
        if (task.demands[memory] > 0.0F) sum.memory_bound += seconds;
        sum.dispatch += task.dispatch.seconds();
      }
      return sum;
    };
    std::vector<std::array<std::optional<BoundsHead>, kPassCount>> sums(graph.blocks.size());
    for (const PassStep& step : micro_batch(graph)) {
      const std::int32_t block = graph.instances[static_cast<std::size_t>(step.instance)].block;
      std::optional<BoundsHead>& sum =
          sums[static_cast<std::size_t>(block)][static_cast<std::size_t>(step.pass)];
      if (!sum) sum = seconds_of(graph.blocks[static_cast<std::size_t>(block)], step.pass);
      head.busy += sum->busy;
      head.neutral += sum->neutral;
      head.memory_bound += sum->memory_bound;
      head.dispatch += sum->dispatch;
    }
    Bytes highest;
    for (const ActivationStep& step : activation_timeline(longest).steps) {
      const Bytes rise = std::max(step.before_gradients.total, step.from_first_gradient.total);
      highest = std::max(highest, zeroplan::sum(step.entry) + rise);
    }
    head.before = tasks.host_costs().micro_step.seconds();
    head.rest = behind_gradients(graph, tasks, program);
    head.waits = waits_before_micro_steps(plan);
    head.tail_alone = head.waits && awaits_reductions(plan.engine);
    head.memory = highest + longest.batch + longest.buffers + longest.kept_outputs +
                  kernel_workspaces(plan).total();
    return head;
  });
}

const TailWork& SearchBounds::tail(const Point& point) const {
  Point key = without_batch(reset(space_, point, {AxisRole::gather, AxisRole::reduce}));
  key = only_affecting(space_, key, &Effects::time);
  key.checkpointing = 0;
  return known(cache_->tails, key, [&] { return tail_work(space_.plan(key)); });
}

// Offloaded weights come as fast as pinning and aio's requests let them: axes of the tail, which
// gathers do not decide. Other axes of the tail, and those of gathers, do not matter to the copies.
const std::vector<CopyWay>& SearchBounds::copy_ways(const Point& point) const {
  Point key = without_batch(reset(space_, point, {AxisRole::tail, AxisRole::reduce}));
  const StrategySpace& all = space_.strategies()[static_cast<std::size_t>(point.strategy)];
  for (std::size_t a = 0; a < all.axes.size(); ++a) {
    const bool gathers =
        all.axes[a].role == AxisRole::gather && all.axes[a].knob != Knob::zero_hpz_partition_size;
    if (gathers) key.at[a] = 0;
  }
  key.checkpointing = 0;
  return known(cache_->copy_ways, key, [&] {
    std::vector<CopyWay> ways;
    if (all.strategy.offload_parameter == OffloadDevice::none) return ways;
    const auto wanted = [](const Axis& axis) {
      return axis.knob == Knob::offload_param_pin_memory || axis.knob == Knob::aio_block_size ||
             axis.knob == Knob::aio_queue_depth || axis.knob == Knob::aio_intra_op_parallelism;
    };
    for_each(space_, key, wanted, [&](const Point& one) {
      CopyWay& way = ways.emplace_back();
      way.plan = std::make_unique<const Plan>(space_.plan(one));
      way.reads = fewest_reads(space_, one, way.plan->engine_parameters, way.plan->engine);
    });
    return ways;
  });
}

// The fastest of the ways counts.
double SearchBounds::fastest_copies(const Point& point, const GatherTimeline& timeline) const {
  const std::vector<CopyWay>& ways = copy_ways(point);
  double fastest = ways.empty() ? 0.0 : std::numeric_limits<double>::infinity();
  for (const CopyWay& way : ways) {
    const DType dtype = way.plan->engine.model_dtype;
    MessageSum sum(*way.plan);
    for (const GatherMessage& message : timeline.messages) {
      Elements read;
      for (const ParameterIndex p : timeline.parameters_of(message)) {
        if (!way.reads.empty()) read += way.reads[static_cast<std::size_t>(p)];
      }
      sum.bring(message.elements * dtype / std::max(1, message.ranks), read * dtype);
    }
    fastest = std::min(fastest, sum.copies());
  }
  return fastest;
}

// Of one micro-step.
const SearchBounds::Messages& SearchBounds::gathers(const Point& point) const {
  const std::vector<Axis>& axes =
      space_.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  Point key = without_batch(reset(space_, point, {AxisRole::tail, AxisRole::reduce}));
  for (std::size_t a = 0; a < axes.size(); ++a) {  // without overlap nothing is prefetched
    const bool decides =
        axes[a].knob == Knob::overlap_comm || decides_drive(space_, point, axes[a]);
    if (decides) key.at[a] = point.at[a];
  }
  key = under(space_, key, cache_->gathers_alike[static_cast<std::size_t>(key.strategy)]);
  return known(cache_->gathers, key, [&] {
    const Plan plan = space_.plan(key);
    if (plan.engine.stage != 3) return Messages{};
    // hpZ: later micro-steps find secondary partitions, and gather less than the first.
    if (plan.engine.stage3.hpz_partition_size > 1) return Messages{};
    const Point alike = reset(space_, key, {AxisRole::gather, AxisRole::reduce, AxisRole::tail});
    // Many choices come to the same gathers: thresholds between the same two sizes of weights, and
    // what of a drive's knobs keeps the same weights there.
    const std::pair rules{alike, FetchCoordinator::decided_by(fetch_model(plan), plan.engine)};
    const auto before = cache_->gathers_by_rules.find(rules);
    if (before != cache_->gathers_by_rules.end()) return before->second;
    const ModelGraph& graph =
        known(cache_->graphs, alike, [&] { return build_graph(*plan.model, graph_options(plan)); });
    // What a micro-step leaves gathered (frozen weights; before 0.19 also those of modules without
    // a backward) is not gathered by the next.
    const GatherTimeline timeline = gather_timeline(plan, graph, 2);
    MessageSum sum(plan);
    for (const GatherMessage& message : timeline.messages) {
      const Bytes bytes = message.elements * plan.engine.model_dtype;
      sum.add(Collective::all_gather, bytes, message.ranks, false, 1, message.first ? 1 : 0);
    }
    Messages messages = sum.take();
    messages.copies = fastest_copies(key, timeline);
    return cache_->gathers_by_rules.emplace(rules, messages).first->second;
  });
}

// Of a whole step.
const SearchBounds::Messages& SearchBounds::reductions(const Point& point) const {
  const Point key = with_first_batch(
      space_, reset(space_, point, {AxisRole::tail, AxisRole::gather}), /*same_micro_batch=*/false);
  const std::int64_t steps = space_.batches()[static_cast<std::size_t>(key.batch)].accumulation;
  return known(cache_->reductions, key, [&] {
    const Plan plan = space_.plan(key);
    Point graph_key = without_batch(reset(space_, key, {AxisRole::reduce}));
    const ModelGraph& graph = known(
        cache_->graphs, graph_key, [&] { return build_graph(*plan.model, graph_options(plan)); });
    EngineConfig config = plan.engine;
    config.rank = heaviest_rank(config, plan.engine_parameters);
    const std::vector<std::int32_t> order = gradients_of(graph);
    const bool waited_for = awaits_reductions(config);
    GradientReducer reducer(config, plan.engine_parameters);
    MessageSum sum(plan);
    EngineActions actions;
    const auto window = [&](int index, std::int64_t times) {
      actions.clear();
      reducer.begin_backward(index);
      std::size_t before_last = 0;  // actions before the last gradient
      for (const std::int32_t parameter : order) {
        before_last = actions.actions.size();
        reducer.gradient_ready(parameter, actions);
      }
      reducer.end_backward(actions);
      const std::size_t end = last_collective(actions);
      for (std::size_t i = 0; i < actions.actions.size(); ++i) {
        const EngineAction& action = actions.actions[i];
        const CollectiveKind kind = action.collective.kind;
        if (!is_sent(action)) continue;
        // On the compute stream nothing runs beside it; else beside the last one nothing does.
        const bool in_line =
            action.stream == EngineStream::compute && !action.collective.asynchronous;
        const bool ends =
            i == end && i >= before_last && (waited_for || index + 1 < static_cast<int>(steps));
        if (ends && !in_line) sum.note_end(times);
        const bool across = action.collective.ranks < partition_ranks(config);
        sum.add(*collective_of(kind),
                action.elements * action.dtype,
                action.collective.ranks,
                across,
                times,
                in_line || ends ? times : 0);
      }
    };
    const int last = static_cast<int>(steps) - 1;
    window(0, 1);
    if (last > 1) window(1, last - 1);
    if (last > 0) window(last, 1);
    return sum.take();
  });
}

namespace {

void keep_least(const MessageTimes& other, bool first, MessageTimes& least) {
  const auto keep = [&](auto member) {
    least.*member = first ? other.*member : std::min(least.*member, other.*member);
  };
  keep(&MessageTimes::taken);
  keep(&MessageTimes::beside);
  keep(&MessageTimes::alone);
  least.ends = std::max(least.ends, other.ends);
  keep(&MessageTimes::everyone);
  keep(&MessageTimes::others);
  keep(&MessageTimes::copies);
  keep(&MessageTimes::lighter);
  keep(&MessageTimes::heavier);
  least.largest = std::max(least.largest, other.largest);
  least.communicators = std::max(least.communicators, other.communicators);
}

}  // namespace

const SearchBounds::Messages& SearchBounds::fewest_gathers(const Point& point) const {
  Point key =
      without_batch(reset(space_, point, {AxisRole::tail, AxisRole::gather, AxisRole::reduce}));
  const std::vector<Axis>& axes =
      space_.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (decides_drive(space_, point, axes[a])) key.at[a] = point.at[a];
  }
  key = under(space_, key, cache_->gathers_alike[static_cast<std::size_t>(key.strategy)]);
  return known(cache_->fewest_gathers, key, [&] {
    Messages least;
    bool first = true;
    const auto wanted = [](const Axis& axis) {
      return axis.role == AxisRole::gather || axis.knob == Knob::overlap_comm;
    };
    for_each(space_, key, wanted, [&](const Point& one) {
      keep_least(gathers(one), first, least);
      first = false;
    });
    return least;
  });
}

const SearchBounds::Messages& SearchBounds::fewest_reductions(const Point& point) const {
  const Point key = reset(space_, point, {AxisRole::tail, AxisRole::gather, AxisRole::reduce});
  return known(cache_->fewest_reductions, key, [&] {
    Messages least;
    bool first = true;
    const auto wanted = [](const Axis& axis) { return axis.role == AxisRole::reduce; };
    for_each(space_, key, wanted, [&](const Point& one) {
      keep_least(reductions(one), first, least);
      first = false;
    });
    return least;
  });
}

// --- time

Seconds SearchBounds::step_time(const Point& point, BoundDepth depth) const {
  const std::scoped_lock lock(cache_->mutex);
  const double G =
      static_cast<double>(space_.batches()[static_cast<std::size_t>(point.batch)].accumulation);
  const BoundsHead& head = this->head(point);
  // The host prepares the first micro-step before anything runs; where it waits for the device,
  // every one.
  double kernels = (head.waits ? G : 1.0) * head.before + G * head.busy;
  double host = G * (head.before + head.dispatch);
  double slowest = head.waits ? (G - 1.0) * std::max(0.0, head.dispatch - head.busy) : 0.0;
  double after = 0.0;
  if (depth != BoundDepth::batch) {
    after = tail(point).seconds;
    host += tail(point).dispatch;
  }
  kernels += after;
  slowest += kernels;  // of host and kernels in each micro-step
  double seconds = std::max({kernels, host, slowest});
  if (depth == BoundDepth::messages || depth == BoundDepth::whole) {
    const bool whole = depth == BoundDepth::whole;
    const Messages& gathered = whole ? gathers(point) : fewest_gathers(point);
    const Messages& reduced = whole ? reductions(point) : fewest_reductions(point);
    // Between two micro-steps the device runs nothing but these.
    const double idle =
        !head.waits ? 0.0
                    : G * gathered.alone + std::max(0.0, reduced.alone - reduced.ends * head.rest);
    const double taken =
        head.waits ? G * gathered.beside + reduced.beside : G * gathered.taken + reduced.taken;
    const double largest = std::max(gathered.largest, reduced.largest);
    const int communicators = 1 + gathered.communicators + reduced.communicators;
    // What may run beside nothing: the host's preparation, kernels that share nothing, the tail
    // where it does not wait for collectives.
    const double open = G * head.neutral + (head.tail_alone ? 0.0 : after) + head.before + idle;
    const double free = std::min(1.0, largest * communicators) * open;
    // Those that memory-bound kernels have no room for run beside compute-bound ones.
    const double crowded =
        G * gathered.lighter + reduced.lighter - communicators * (G * head.memory_bound + open);
    const double heavier =
        std::min({gathered.heavier, reduced.heavier, 1.0 / communicators - largest});
    const double dearer = std::max(0.0, crowded) * std::max(0.0, heavier);
    seconds = std::max({seconds,
                        kernels + idle + std::max(0.0, taken - free) + dearer,
                        G * gathered.everyone + reduced.everyone,
                        G * gathered.others,
                        reduced.others,
                        G * gathered.copies});
  }
  return Seconds::of(seconds * (1.0 - kRounding));
}

double SearchBounds::tokens_per_second(const Point& point, BoundDepth depth) const {
  const BatchSizes& batch = space_.batches()[static_cast<std::size_t>(point.batch)];
  return space_.tokens_of_a_sequence() * static_cast<double>(batch.micro_batch) *
         static_cast<double>(batch.accumulation) / step_time(point, depth).seconds();
}

}  // namespace zeroplan
