// [S1] of SearchBounds: what gathers, reductions and copies of offloaded weights take.
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "model/engine/fetch_coordinator.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/engine/partition.hpp"
#include "model/engine/swapping.hpp"
#include "model/implementations/implementations.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/step/engine_collective.hpp"
#include "model/step/graph_options.hpp"
#include "model/step/module_walk.hpp"
#include "tuner/knob_effect.hpp"
#include "tuner/message_sum.hpp"
#include "tuner/point_keys.hpp"
#include "tuner/search_bounds.hpp"
#include "tuner/search_bounds_cache.hpp"

namespace zeroplan::tuner {

namespace {

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

bool is_sent(const EngineAction& action) {
  return action.kind == ActionKind::collective && action.collective.kind != CollectiveKind::barrier;
}

// The index of the last that is sent; of no action where none is.
std::size_t last_collective(const EngineActions& actions) {
  std::size_t i = actions.actions.size();
  while (i > 0 && !is_sent(actions.actions[i - 1])) --i;
  return i > 0 ? i - 1 : actions.actions.size();
}

}  // namespace

// Offloaded weights come as fast as pinning and aio's requests let them: axes of the tail, which
// gathers do not decide. Other axes of the tail, and those of gathers, do not matter to the copies.
const std::vector<CopyWay>& SearchBounds::copy_ways(const Point& point) const {
  Point key = without_batch(reset(space_, point, {KnobRole::step, KnobRole::reduce}));
  const StrategySpace& all = space_.strategies()[static_cast<std::size_t>(point.strategy)];
  for (std::size_t a = 0; a < all.axes.size(); ++a) {
    const bool gathers =
        all.axes[a].role == KnobRole::gather && all.axes[a].knob != Knob::zero_hpz_partition_size;
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

namespace {

// The fastest of the ways counts.
void add_fastest_copies(const std::vector<CopyWay>& ways,
                        const GatherTimeline& timeline,
                        MessageTimes& to) {
  if (ways.empty()) return;
  to.copies = to.blocked = std::numeric_limits<double>::infinity();
  for (const CopyWay& way : ways) {
    const DType dtype = way.plan->engine.model_dtype;
    MessageSum sum(*way.plan);
    for (const GatherMessage& message : timeline.messages) {
      for (const ParameterIndex p : timeline.parameters_of(message)) {
        const auto index = static_cast<std::size_t>(p);
        const Elements part =
            partitioned_numel(way.plan->engine_parameters[index].numel, std::max(1, message.ranks));
        const Elements read = way.reads.empty() ? Elements::zero() : way.reads[index];
        sum.bring(part * dtype, read * dtype);
      }
    }
    to.copies = std::min(to.copies, sum.copies());
    to.blocked = std::min(to.blocked, sum.blocked());
  }
}

// What a micro-step leaves gathered (frozen weights; before 0.19 also those of modules without a
// backward) is not gathered by the next: without hpZ the first counts as the later ones, which
// gather no more.
GatherTimes gather_times(const Plan& plan,
                         const ModelGraph& graph,
                         const std::vector<CopyWay>& ways) {
  const auto times_of = [&](int micro_step) {
    const GatherTimeline timeline = gather_timeline(plan, graph, micro_step);
    MessageSum sum(plan);
    for (const GatherMessage& message : timeline.messages) {
      const Bytes bytes = message.elements * plan.engine.model_dtype;
      sum.add(Collective::all_gather, bytes, message.ranks, false, 1, message.first ? 1 : 0);
    }
    MessageTimes times = sum.take();
    add_fastest_copies(ways, timeline, times);
    return times;
  };
  GatherTimes times;
  times.first = times.later = times_of(2);
  if (plan.engine.stage3.hpz_partition_size > 1) times.first = times_of(0);
  return times;
}

}  // namespace

Point SearchBounds::gather_key(const Point& point) const {
  const std::vector<Axis>& axes =
      space_.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  Point key = without_batch(reset(space_, point, {KnobRole::step, KnobRole::reduce}));
  for (std::size_t a = 0; a < axes.size(); ++a) {  // without overlap nothing is prefetched
    const bool decides =
        axes[a].knob == Knob::overlap_comm || decides_drive(space_, point, axes[a]);
    if (decides) key.at[a] = point.at[a];
  }
  return under(space_, key, cache_->gathers_alike[static_cast<std::size_t>(key.strategy)]);
}

// Of one micro-step.
const GatherTimes& SearchBounds::gathers(const Point& point) const {
  const Point key = gather_key(point);
  const auto found = cache_->gathers.find(key);
  if (found != cache_->gathers.end()) return *found->second;
  make_gathers({key});
  return *cache_->gathers.at(key);
}

// Many choices come to the same gathers: thresholds between the same two sizes of weights, and what
// of a drive's knobs keeps the same weights there. Those that are new are worked out by the
// threads, some at a time.
void SearchBounds::make_gathers(const std::vector<Point>& keys) const {
  struct Wanted {
    Point key;
    std::pair<Point, std::vector<std::int64_t>> rules;
  };
  struct Fresh {
    Plan plan;
    const ModelGraph* graph = nullptr;
    const std::vector<CopyWay>* ways = nullptr;
    GatherTimes times;
  };
  constexpr std::size_t kAtOnce = 64;
  for (std::size_t begin = 0; begin < keys.size(); begin += kAtOnce) {
    std::vector<Wanted> wanted;
    std::map<std::pair<Point, std::vector<std::int64_t>>, Fresh> fresh;
    for (std::size_t i = begin; i < std::min(keys.size(), begin + kAtOnce); ++i) {
      const Point& key = keys[i];
      Plan plan = space_.plan(key);
      if (plan.engine.stage != 3) {
        cache_->gathers.emplace(key, std::make_unique<const GatherTimes>());
        continue;
      }
      const Point alike = reset(space_, key, {KnobRole::gather, KnobRole::reduce, KnobRole::step});
      std::pair rules{alike, FetchCoordinator::decided_by(fetch_model(plan), plan.engine)};
      if (cache_->gathers_by_rules.count(rules) == 0 && fresh.count(rules) == 0) {
        const ModelGraph& graph = known(
            cache_->graphs, alike, [&] { return build_graph(*plan.model, graph_options(plan)); });
        fresh.emplace(rules, Fresh{std::move(plan), &graph, &copy_ways(key), {}});
      }
      wanted.push_back({key, std::move(rules)});
    }
    std::vector<Fresh*> jobs;
    for (auto& [rules, one] : fresh) jobs.push_back(&one);
    cache_->pool.run(jobs.size(), [&](std::size_t i) {
      jobs[i]->times = gather_times(jobs[i]->plan, *jobs[i]->graph, *jobs[i]->ways);
    });
    for (auto& [rules, one] : fresh) cache_->gathers_by_rules.emplace(rules, one.times);
    for (const Wanted& one : wanted) {
      cache_->gathers.emplace(
          one.key, std::make_unique<const GatherTimes>(cache_->gathers_by_rules.at(one.rules)));
    }
  }
}

// Of a whole step.
const SearchBounds::Messages& SearchBounds::reductions(const Point& point) const {
  const Point key = with_first_batch(
      space_, reset(space_, point, {KnobRole::step, KnobRole::gather}), /*same_micro_batch=*/false);
  const std::int64_t steps = space_.batches()[static_cast<std::size_t>(key.batch)].accumulation;
  return known(cache_->reductions, key, [&] {
    const Plan plan = space_.plan(key);
    Point graph_key = without_batch(reset(space_, key, {KnobRole::reduce}));
    const ModelGraph& graph = known(
        cache_->graphs, graph_key, [&] { return build_graph(*plan.model, graph_options(plan)); });
    EngineConfig config = plan.engine;
    config.rank = heaviest_rank(config, plan.engine_parameters);
    const std::vector<std::int32_t> order = gradient_order(graph);
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
  keep(&MessageTimes::blocked);
  keep(&MessageTimes::lighter);
  keep(&MessageTimes::heavier);
  least.largest = std::max(least.largest, other.largest);
  least.communicators = std::max(least.communicators, other.communicators);
}

}  // namespace

const GatherTimes& SearchBounds::fewest_gathers(const Point& point) const {
  Point key =
      without_batch(reset(space_, point, {KnobRole::step, KnobRole::gather, KnobRole::reduce}));
  const std::vector<Axis>& axes =
      space_.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (decides_drive(space_, point, axes[a])) key.at[a] = point.at[a];
  }
  key = under(space_, key, cache_->gathers_alike[static_cast<std::size_t>(key.strategy)]);
  return known(cache_->fewest_gathers, key, [&] {
    GatherTimes least;
    bool first = true;
    const auto wanted = [](const Axis& axis) {
      return axis.role == KnobRole::gather || axis.knob == Knob::overlap_comm;
    };
    std::vector<Point> missing;
    for_each(space_, key, wanted, [&](const Point& one) {
      const Point its = gather_key(one);
      if (cache_->gathers.count(its) == 0) missing.push_back(its);
    });
    make_gathers(missing);
    for_each(space_, key, wanted, [&](const Point& one) {
      keep_least(gathers(one).first, first, least.first);
      keep_least(gathers(one).later, first, least.later);
      first = false;
    });
    return least;
  });
}

const SearchBounds::Messages& SearchBounds::fewest_reductions(const Point& point) const {
  const Point key = reset(space_, point, {KnobRole::step, KnobRole::gather, KnobRole::reduce});
  return known(cache_->fewest_reductions, key, [&] {
    Messages least;
    bool first = true;
    const auto wanted = [](const Axis& axis) { return axis.role == KnobRole::reduce; };
    for_each(space_, key, wanted, [&](const Point& one) {
      keep_least(reductions(one), first, least);
      first = false;
    });
    return least;
  });
}
}  // namespace zeroplan::tuner
