// What a part of a bound depends on: points that agree in it have the same key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tuner/search_space.hpp"

namespace zeroplan::tuner {

// Axes of these roles at their first value.
Point reset(const SearchSpace& space, Point point, std::initializer_list<KnobRole> roles);

Point without_batch(Point point);

// The first batch of the list with the same micro-batch, or with the same accumulation: other
// numbers do not matter to what is asked.
Point with_first_batch(const SearchSpace& space, Point point, bool same_micro_batch);

// The first batch of the list that accumulates if the point's does: the engine's buffers depend on
// whether there are several micro-steps, not on how many (model/engine/buffers.hpp).
Point with_first_accumulating_alike(const SearchSpace& space, Point point);

// Axes at their first value whose knob does not change what is asked for.
Point only_affecting(const SearchSpace& space, Point point, bool Effects::*what);

// Do two strategies gather the same weights under the same knobs? Where the optimizer is does not
// change it (model/engine/fetch_coordinator.hpp), nor what weights take to come from the host.
// Where weights are on NVMe, axes of the tail do, which two strategies may have different ones of.
bool gather_alike(const StrategySpace& a, const StrategySpace& b);

// The point under a strategy that gathers alike; axes of the tail at their first value.
Point under(const SearchSpace& space, const Point& point, std::int32_t strategy);

// Calls visit(point) for every choice of the axes of that role.
template <typename Wanted, typename Visit>
void for_each(const SearchSpace& space, Point point, Wanted&& wanted, Visit&& visit) {
  const std::vector<Axis>& axes = space.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  std::vector<std::size_t> free;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (!wanted(axes[a])) continue;
    free.push_back(a);
    point.at[a] = 0;
  }
  while (true) {
    visit(point);
    std::size_t i = 0;
    while (i < free.size()) {
      const std::size_t a = free[i];
      if (++point.at[a] < axes[a].values.size()) break;
      point.at[a] = 0;
      ++i;
    }
    if (i == free.size()) return;
  }
}

}  // namespace zeroplan::tuner
