#include "tuner/search_bounds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <vector>

#include "model/cost/coefficients.hpp"
#include "model/implementations/implementations.hpp"
#include "model/predict/job_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/step/graph_options.hpp"
#include "model/step/kernel_workspaces.hpp"
#include "model/step/module_walk.hpp"
#include "model/step/outside_passes.hpp"
#include "simulator/engines/deepspeed_writer.hpp"
#include "simulator/task_table.hpp"
#include "tuner/message_sum.hpp"
#include "tuner/point_keys.hpp"
#include "tuner/search_bounds_cache.hpp"
#include "tuner/step_lower_bound.hpp"

namespace zeroplan::tuner {
namespace {

// Times are sums of floats in another order than the simulator's.
constexpr double kRounding = 1e-6;

// Seconds of kernels that follow a micro-batch's last gradient.
double behind_gradients(const ModelGraph& graph,
                        simulator::TaskTable& tasks,
                        const simulator::Program& program) {
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
      const simulator::TaskIndex task = tasks.operation(block, block.operations[index], step->pass);
      seconds += program.tasks[static_cast<std::size_t>(task)].duration.seconds();
    }
  }
  return seconds;
}

}  // namespace

SearchBounds::SearchBounds(const SearchSpace& space,
                           const PredictOptions& options,
                           std::size_t threads)
    : space_(space), options_(options), cache_(std::make_unique<BoundsCache>(threads)) {
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
                       reset(space_, point, {KnobRole::step, KnobRole::gather, KnobRole::reduce}),
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
    simulator::Program program;
    simulator::ProgramWriter writer(program);
    simulator::TaskTable tasks(timed, writer);
    BoundsHead head;
    const auto seconds_of = [&](const Block& block, Pass pass) {
      BoundsHead sum;
      for (const Event& event : block.of(pass)) {
        if (event.kind != EventKind::operation) continue;
        const Operation& operation = block.operations[static_cast<std::size_t>(event.index)];
        const simulator::Task& task =
            program.tasks[static_cast<std::size_t>(tasks.operation(block, operation, pass))];
        const double seconds = task.duration.seconds();
        sum.busy += seconds;
        if (task.demands == simulator::Demands{}) sum.neutral += seconds;
        const auto memory = static_cast<std::size_t>(simulator::SharedResource::gpu_memory);
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
    head.waits = simulator::waits_before_micro_steps(plan);
    head.tail_alone = head.waits && awaits_reductions(plan.engine);
    head.memory = highest + longest.batch + longest.buffers + longest.kept_outputs +
                  kernel_workspaces(plan).total();
    return head;
  });
}

const TailWork& SearchBounds::tail(const Point& point) const {
  Point key = without_batch(reset(space_, point, {KnobRole::gather, KnobRole::reduce}));
  key = only_affecting(space_, key, &Effects::time);
  key.checkpointing = 0;
  return known(cache_->tails, key, [&] { return tail_work(space_.plan(key)); });
}

// --- time

Seconds SearchBounds::step_time(const Point& point, BoundDepth depth) const {
  if (depth == BoundDepth::clocks) {
    const Seconds passes = this->passes(point);
    const Seconds whole = step_time(point, BoundDepth::whole);
    if (passes == Seconds::zero()) return whole;
    const std::scoped_lock lock(cache_->mutex);
    const double seconds = passes.seconds() + tail(point).seconds;
    return std::max(whole, Seconds::of(seconds * (1.0 - kRounding)));
  }
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
    const Messages gathered = (whole ? gathers(point) : fewest_gathers(point)).of(G);
    const Messages& reduced = whole ? reductions(point) : fewest_reductions(point);
    // Between two micro-steps the device runs nothing but these.
    const double idle =
        !head.waits ? 0.0
                    : gathered.alone + std::max(0.0, reduced.alone - reduced.ends * head.rest);
    const double taken =
        head.waits ? gathered.beside + reduced.beside : gathered.taken + reduced.taken;
    const double largest = std::max(gathered.largest, reduced.largest);
    const int communicators = 1 + gathered.communicators + reduced.communicators;
    // What may run beside nothing: the host's preparation, kernels that share nothing, the tail
    // where it does not wait for collectives.
    const double open = G * head.neutral + (head.tail_alone ? 0.0 : after) + head.before + idle;
    const double free = std::min(1.0, largest * communicators) * open;
    // Those that memory-bound kernels have no room for run beside compute-bound ones.
    const double crowded =
        gathered.lighter + reduced.lighter - communicators * (G * head.memory_bound + open);
    const double heavier =
        std::min({gathered.heavier, reduced.heavier, 1.0 / communicators - largest});
    const double dearer = std::max(0.0, crowded) * std::max(0.0, heavier);
    seconds = std::max({seconds,
                        kernels + idle + std::max(0.0, taken - free) + dearer,
                        gathered.everyone + reduced.everyone,
                        gathered.others,
                        reduced.others,
                        gathered.copies,
                        host + gathered.blocked});
  }
  return Seconds::of(seconds * (1.0 - kRounding));
}

double SearchBounds::tokens_per_second(const Point& point, BoundDepth depth) const {
  const BatchSizes& batch = space_.batches()[static_cast<std::size_t>(point.batch)];
  return space_.tokens_of_a_sequence() * static_cast<double>(batch.micro_batch) *
         static_cast<double>(batch.accumulation) / step_time(point, depth).seconds();
}

}  // namespace zeroplan::tuner
