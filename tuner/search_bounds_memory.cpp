// [S2] and [S3] of SearchBounds.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "model/engine/buffers.hpp"
#include "model/predict/host_memory.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/knob_effect.hpp"
#include "tuner/point_keys.hpp"
#include "tuner/search_bounds.hpp"
#include "tuner/search_bounds_cache.hpp"

namespace zeroplan::tuner {

namespace {

// Is a buffer there in every backward pass, or, where gradients of earlier micro-steps wait, in
// every one but the first? Those that are followed piece by piece are left out.
bool always_there(const EngineBuffer& buffer, const EngineConfig& config) {
  if (buffer.place != BufferPlace::gpu || buffer.name == BufferName::ds_secondary_tensor)
    return false;
  if (config.stage == 3 && buffer.name == BufferName::persistent_parameters) return false;
  if (is_unbuffered_gradient(buffer, config)) return false;
  if (is_waiting_gradient(buffer)) {
    return config.gradient_accumulation_steps > 1 &&
           buffer.lifetime != BufferLifetime::boundary_to_step;
  }
  if (buffer.suffix == ".grad" && buffer.lifetime == BufferLifetime::first_backward_on) {
    return false;
  }
  return buffer.lifetime == BufferLifetime::resident ||
         buffer.lifetime == BufferLifetime::first_backward_on ||
         buffer.lifetime == BufferLifetime::first_step_on;
}

}  // namespace

Bytes SearchBounds::buffers(const Point& point) const {
  Point key = with_first_accumulating_alike(space_, reset(space_, point, {KnobRole::gather}));
  key = only_affecting(space_, key, &Effects::gpu_memory);
  key.checkpointing = 0;
  return known(cache_->buffers, key, [&] {
    const Plan plan = space_.plan(key);
    EngineConfig config = plan.engine;
    config.rank = heaviest_rank(config, plan.engine_parameters);
    Bytes bytes;
    for (const EngineBuffer& buffer : engine_buffers(config, plan.engine_parameters)) {
      if (always_there(buffer, config)) bytes += buffer.bytes;
    }
    return bytes;
  });
}

Bytes SearchBounds::fewest_buffers(const Point& point, BoundDepth depth) const {
  Point key = reset(space_, point, {KnobRole::gather, KnobRole::reduce});
  if (depth == BoundDepth::batch) key = reset(space_, key, {KnobRole::step, KnobRole::other});
  key.checkpointing = 0;
  key = only_affecting(space_, key, &Effects::gpu_memory);
  key = with_first_accumulating_alike(space_, key);
  // One entry for each depth: the coarser one differs in a place no strategy uses.
  key.at.back() = depth == BoundDepth::batch ? 1 : 0;
  return known(cache_->fewest_buffers, key, [&] {
    Point from = key;
    from.at.back() = 0;
    Bytes least = Bytes::infinite();
    const auto wanted = [&](const Axis& axis) {
      const bool free = axis.role == KnobRole::reduce || depth == BoundDepth::batch;
      return free && axis.role != KnobRole::gather && knob_row(axis.knob).affects.gpu_memory;
    };
    for_each(
        space_, from, wanted, [&](const Point& one) { least = std::min(least, buffers(one)); });
    return least;
  });
}

// hpZ: from the second micro-step on each parameter is gathered or has its secondary partition,
// which is the smaller of the two. Those of frozen ones are always there.
Bytes SearchBounds::secondary_partitions(const Point& point) const {
  const std::vector<Axis>& axes =
      space_.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  Point key = with_first_accumulating_alike(space_, point);
  key.checkpointing = 0;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].knob != Knob::zero_hpz_partition_size) key.at[a] = 0;
  }
  return known(cache_->secondary_partitions, key, [&] {
    const Plan plan = space_.plan(key);
    if (plan.engine.stage3.hpz_partition_size <= 1) return Bytes::zero();
    const bool all = plan.engine.gradient_accumulation_steps > 1;
    EngineConfig config = plan.engine;
    config.rank = heaviest_rank(config, plan.engine_parameters);
    Bytes bytes;
    for (const EngineBuffer& buffer : engine_buffers(config, plan.engine_parameters)) {
      if (buffer.name != BufferName::ds_secondary_tensor || buffer.place != BufferPlace::gpu)
        continue;
      if (all || buffer.lifetime == BufferLifetime::resident) bytes += buffer.bytes;
    }
    return bytes;
  });
}

namespace {

// The value of hpZ's axis, wherever it stands there, of which `cost(group)` is least.
template <typename Cost>
Point with_least_hpz(const SearchSpace& space, Point point, Cost&& cost) {
  const std::vector<Axis>& axes = space.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (axes[a].knob != Knob::zero_hpz_partition_size) continue;
    const auto least = std::min_element(
        axes[a].values.begin(), axes[a].values.end(), [&](const KnobValue& x, const KnobValue& y) {
          return cost(std::get<std::int64_t>(x)) < cost(std::get<std::int64_t>(y));
        });
    point.at[a] = static_cast<std::uint8_t>(least - axes[a].values.begin());
  }
  return point;
}

}  // namespace

// hpZ brings a communicator of its own: the smallest group's takes least.
Bytes SearchBounds::outside_torch(const Point& point) const {
  Point key = without_batch(
      reset(space_, point, {KnobRole::step, KnobRole::other, KnobRole::gather, KnobRole::reduce}));
  key = with_least_hpz(space_, key, [](std::int64_t group) { return group; });
  return known(cache_->outside, key, [&] { return outside_torch_bytes(space_.plan(key)); });
}

Bytes SearchBounds::gpu_memory(const Point& point, BoundDepth depth) const {
  const std::scoped_lock lock(cache_->mutex);
  const bool whole = depth == BoundDepth::whole || depth == BoundDepth::clocks;
  const Bytes engine =
      whole ? buffers(point) + secondary_partitions(point) : fewest_buffers(point, depth);
  return engine + head(point).memory + outside_torch(point);
}

bool SearchBounds::may_fit(const Point& point) const {
  Bytes least;
  double beside = 1.0;
  {
    const std::scoped_lock lock(cache_->mutex);
    least = gpu_memory(point, BoundDepth::whole);
    beside = host(point).probability;
  }
  const Bytes room = space_.prepared().cluster->gpu.memory.value - options_.reserve;
  // simulate(): the probability is that of a GPU smaller by the factor the allocator bears.
  const double factor = static_cast<double>(room.count()) / static_cast<double>(least.count());
  const double z = (factor - 1.0) / memory_sd(point);
  return 0.5 * std::erfc(-z / std::sqrt(2.0)) * beside >= options_.confidence;
}

// Not under the lock: it takes the prediction of a plan.
double SearchBounds::memory_sd(const Point& point) const {
  const Point key = only_affecting(space_, point, &Effects::gpu_memory);
  {
    const std::scoped_lock lock(cache_->mutex);
    const auto found = cache_->memory_sd.find(key);
    if (found != cache_->memory_sd.end()) return *found->second;
  }
  const Plan plan = space_.plan(key);
  const MemoryPrediction memory = predict_memory_without_pool(plan, step_work(plan));
  const double sd = std::max(1e-6, memory.relative_sd);
  const std::scoped_lock lock(cache_->mutex);
  return known(cache_->memory_sd, key, [&] { return sd; });
}

const HostState& SearchBounds::host(const Point& point) const {
  const std::scoped_lock lock(cache_->mutex);
  Point key = with_first_batch(space_, point, /*same_micro_batch=*/false);
  key = only_affecting(space_, key, &Effects::host_memory);
  // The larger the group, the smaller a rank's part; of one rank there is none.
  key = with_least_hpz(space_, key, [](std::int64_t group) {
    return group > 1 ? 1.0 / static_cast<double>(group) : 0.0;
  });
  key.checkpointing = 0;
  return known(cache_->host, key, [&] {
    const Plan plan = space_.plan(key);
    MemoryPrediction memory;
    memory.gpu.capacity = plan.cluster.gpu.memory.value;
    EngineConfig config = plan.engine;
    config.rank = heaviest_rank(config, plan.engine_parameters);
    const std::vector<EngineBuffer> list = engine_buffers(config, plan.engine_parameters);
    // Checkpoints that wait on the host come on top: a bound goes without them.
    predict_host(plan,
                 list,
                 outside_passes(plan, config, list, plan.cluster.gpu.memory.value),
                 Bytes::zero(),
                 memory);
    const Verdict verdict = judge(plan, memory, {1.0, Bytes::zero()}, options_);
    return HostState{verdict.probability, memory.host.peak};
  });
}

}  // namespace zeroplan::tuner
