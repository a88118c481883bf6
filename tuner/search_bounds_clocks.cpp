// P of [S1]: programs that are written and followed by their clocks.
#include <mutex>

#include "model/predict/gather_timeline.hpp"
#include "model/predict/job_time.hpp"
#include "model/step/graph_options.hpp"
#include "simulator/least_step_time.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/simulate.hpp"
#include "tuner/point_keys.hpp"
#include "tuner/search_bounds.hpp"
#include "tuner/search_bounds_cache.hpp"

namespace zeroplan::tuner {
namespace {

// Of the axes of the tail two matter to the passes: the host waits for copies of memory that is not
// page-locked, and they are slower.
Point with_pinned_memory(const SearchSpace& space, Point point) {
  const std::vector<Axis>& axes = space.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    const bool pins = axes[a].knob == Knob::offload_param_pin_memory ||
                      axes[a].knob == Knob::offload_optimizer_pin_memory;
    if (!pins) continue;
    for (std::size_t v = 0; v < axes[a].values.size(); ++v) {
      if (std::get<bool>(axes[a].values[v])) point.at[a] = static_cast<std::uint8_t>(v);
    }
  }
  return point;
}

// Is it simulated as one rank's program, by the search too, and is that of every length?
bool has_clocks(const Plan& plan) {
  return runs_deepspeed(plan.workload) && plan.stages.empty() &&
         plan.engine.offload_parameter.device != OffloadDevice::nvme &&
         plan.engine.offload_optimizer.device != OffloadDevice::nvme &&
         simulator::is_simulated(plan) && !mean_step_plan(plan);
}

}  // namespace

// Zero where the plan has none. Choices of the gathers' knobs that come to the same gathers have
// one program between them.
Seconds SearchBounds::passes(const Point& point) const {
  const Point key = with_pinned_memory(space_, reset(space_, point, {KnobRole::step}));
  const Point alike = reset(space_, key, {KnobRole::gather});
  const Point graph_key = reset(space_, alike, {KnobRole::reduce});
  std::optional<Plan> plan;
  const StepWork* work = nullptr;
  std::tuple<Point, std::uint64_t, std::uint64_t> print;
  {
    const std::scoped_lock lock(cache_->mutex);
    work = &known(cache_->works, graph_key, [&] {
      const Plan made = space_.plan(graph_key);
      return has_clocks(made) ? step_work(made) : StepWork{};
    });
    if (work->graph.instances.empty()) return Seconds::zero();
    Point gather_key = without_batch(key);
    const std::vector<Axis>& axes =
        space_.strategies()[static_cast<std::size_t>(key.strategy)].axes;
    for (std::size_t a = 0; a < axes.size(); ++a) {  // without overlap nothing is prefetched
      if (axes[a].knob == Knob::reduce_bucket_size) gather_key.at[a] = 0;
    }
    const Fingerprint& gathers = known(cache_->gather_prints, gather_key, [&] {
      plan = space_.plan(key);
      return plan->engine.stage == 3 ? gathers_fingerprint(*plan, work->graph) : Fingerprint{};
    });
    print = {alike, gathers.high, gathers.low};
    const auto found = cache_->passes.find(print);
    if (found != cache_->passes.end()) return found->second;
  }
  if (!plan) plan = space_.plan(key);
  const Seconds least =
      simulator::least_passes_time(simulator::write_steady_step(*plan, work->graph));
  const std::scoped_lock lock(cache_->mutex);
  return cache_->passes.emplace(print, least).first->second;
}

}  // namespace zeroplan::tuner
