#include "tuner/trade_offs.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace zeroplan {
namespace {

constexpr double kFirstShare = 0.5;  // of the time limit, for the search without a ceiling

bool was_cut(const SearchResult& result) { return result.interrupted || result.out_of_time; }

// Points that were not known yet.
void add(std::vector<Evaluated> found, std::set<Point>& known, TradeOffs& all) {
  for (Evaluated& item : found) {
    if (known.insert(item.point).second) all.points.push_back(std::move(item));
  }
}

struct MemoryRange {
  Bytes least = Bytes::infinite();
  Bytes most;
};

MemoryRange memory_range(const std::vector<Evaluated>& points) {
  MemoryRange range;
  for (const Evaluated& item : points) {
    range.least = std::min(range.least, item.gpu_memory);
    range.most = std::max(range.most, item.gpu_memory);
  }
  return range;
}

void mark_front(TradeOffs& all) {
  std::stable_sort(all.points.begin(),
                   all.points.end(),
                   [](const Evaluated& a, const Evaluated& b) {
                     if (a.gpu_memory != b.gpu_memory) return a.gpu_memory > b.gpu_memory;
                     return a.tokens_per_second < b.tokens_per_second;
                   });
  double fastest = 0.0;
  for (std::size_t i = all.points.size(); i-- > 0;) {
    if (all.points[i].tokens_per_second <= fastest) continue;
    // Of points with the same memory the last one is the fastest.
    fastest = all.points[i].tokens_per_second;
    all.front.push_back(i);
  }
  std::reverse(all.front.begin(), all.front.end());
}

}  // namespace

TradeOffs trade_offs(const SearchSpace& space, const SearchOptions& options, int ceilings) {
  TradeOffs all;
  std::set<Point> known;
  const double limit = options.seconds;
  SearchOptions one = options;
  one.seconds = limit * kFirstShare;
  all.search = search(space, one);
  all.evaluated = all.search.evaluated;
  all.seconds = all.search.seconds;
  all.complete = !was_cut(all.search);
  add(std::exchange(all.search.fitting, {}), known, all);

  const Bytes capacity = space.prepared().cluster->gpu.memory.value;
  if (all.search.best) {
    const auto [least, most] = memory_range(all.points);
    one.goal = SearchGoal::throughput;
    for (int i = 1; i <= ceilings && !all.search.interrupted && least < most; ++i) {
      const double left = limit - all.seconds;
      if (left <= 0.0) {
        all.complete = false;
        break;
      }
      const double share = 1.0 - static_cast<double>(i) / (ceilings + 1);
      const Bytes ceiling =
          least + Bytes::nearest(static_cast<double>((most - least).count()) * share);
      one.limits.predict.reserve = capacity - ceiling;
      one.seconds = left / (ceilings - i + 1);
      SearchResult found = search(space, one);
      all.evaluated += found.evaluated;
      all.seconds += found.seconds;
      all.complete = all.complete && !was_cut(found);
      add(std::move(found.fitting), known, all);
    }
  }
  mark_front(all);
  for (std::size_t i = 0; i < all.points.size() && all.search.best; ++i) {
    if (all.points[i].point == all.search.best->point) all.best = i;
  }
  return all;
}

}  // namespace zeroplan
