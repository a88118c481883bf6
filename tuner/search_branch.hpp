// A subtree of a search: what is decided so far, and what it may still hold.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tuner/search_bounds.hpp"
#include "tuner/search_space.hpp"

namespace zeroplan::tuner {

struct Branch {
  Point point;  // open axes at their first value
  BoundDepth depth = BoundDepth::batch;
  double bound = 0.0;  // on the score, from above
  int cost = 0;        // of its simplest point
  std::int64_t points = 0;
};

// Points of one branch that still have to be looked at, the simplest first.
struct Leaves {
  std::vector<std::pair<int, Point>> points;
  std::size_t next = 0;
  std::int64_t tried = 0;
  std::int64_t fitted = 0;
  double bound = 0.0;
};

inline const std::vector<Axis>& axes_of(const SearchSpace& space, const Point& point) {
  return space.strategies()[static_cast<std::size_t>(point.strategy)].axes;
}

// The less, the better: the larger.
inline double score_of_memory(Bytes bytes) { return 1e18 / static_cast<double>(bytes.count()); }

// Axes of the lowest level: gathers and reductions.
inline bool is_inner(const Axis& axis) {
  return axis.role == KnobRole::gather || axis.role == KnobRole::reduce;
}

}  // namespace zeroplan::tuner
