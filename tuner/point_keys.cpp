#include "tuner/point_keys.hpp"

#include <algorithm>

#include "tuner/knob_effect.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {
namespace {

bool is_tail(const Axis& axis) { return axis.role == KnobRole::step; }

const Axis* find_axis(const StrategySpace& space, Knob knob) {
  const auto found = std::find_if(
      space.axes.begin(), space.axes.end(), [&](const Axis& axis) { return axis.knob == knob; });
  return found == space.axes.end() ? nullptr : &*found;
}

bool has_axes_of(const StrategySpace& one, const StrategySpace& other) {
  return std::all_of(other.axes.begin(), other.axes.end(), [&](const Axis& axis) {
    if (is_tail(axis)) return true;
    const Axis* same = find_axis(one, axis.knob);
    return same != nullptr && same->values.size() == axis.values.size() &&
           std::equal(
               axis.values.begin(),
               axis.values.end(),
               same->values.begin(),
               [](const KnobValue& a, const KnobValue& b) { return to_json(a) == to_json(b); });
  });
}

}  // namespace

Point reset(const SearchSpace& space, Point point, std::initializer_list<KnobRole> roles) {
  const std::vector<Axis>& axes = space.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    for (const KnobRole role : roles) {
      if (axes[a].role == role) point.at[a] = 0;
    }
  }
  return point;
}

Point without_batch(Point point) {
  point.batch = 0;
  return point;
}

Point with_first_batch(const SearchSpace& space, Point point, bool same_micro_batch) {
  const std::vector<BatchSizes>& batches = space.batches();
  const BatchSizes now = batches[static_cast<std::size_t>(point.batch)];
  const auto found = std::find_if(batches.begin(), batches.end(), [&](const BatchSizes& other) {
    return same_micro_batch ? other.micro_batch == now.micro_batch
                            : other.accumulation == now.accumulation;
  });
  point.batch = static_cast<std::int32_t>(found - batches.begin());
  return point;
}

Point with_first_accumulating_alike(const SearchSpace& space, Point point) {
  const std::vector<BatchSizes>& batches = space.batches();
  const bool accumulates = batches[static_cast<std::size_t>(point.batch)].accumulation > 1;
  const auto found = std::find_if(batches.begin(), batches.end(), [&](const BatchSizes& other) {
    return (other.accumulation > 1) == accumulates;
  });
  point.batch = static_cast<std::int32_t>(found - batches.begin());
  return point;
}

Point only_affecting(const SearchSpace& space, Point point, bool Effects::*what) {
  const std::vector<Axis>& axes = space.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (!(knob_row(axes[a].knob).affects.*what)) point.at[a] = 0;
  }
  return point;
}

bool gather_alike(const StrategySpace& a, const StrategySpace& b) {
  if (&a == &b) return true;
  return a.strategy.stage == b.strategy.stage &&
         a.strategy.offload_parameter != OffloadDevice::nvme &&
         a.strategy.offload_parameter == b.strategy.offload_parameter && has_axes_of(a, b) &&
         has_axes_of(b, a);
}

Point under(const SearchSpace& space, const Point& point, std::int32_t strategy) {
  if (point.strategy == strategy) return point;
  const StrategySpace& from = space.strategies()[static_cast<std::size_t>(point.strategy)];
  const StrategySpace& to = space.strategies()[static_cast<std::size_t>(strategy)];
  Point result = point;
  result.strategy = strategy;
  result.at = {};
  for (std::size_t a = 0; a < from.axes.size(); ++a) {
    if (is_tail(from.axes[a])) continue;
    result.at[static_cast<std::size_t>(find_axis(to, from.axes[a].knob) - to.axes.data())] =
        point.at[a];
  }
  return result;
}

}  // namespace zeroplan::tuner
