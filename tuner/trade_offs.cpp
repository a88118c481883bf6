#include "tuner/trade_offs.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "tuner/search.hpp"

namespace zeroplan::tuner {
namespace {

// Of the time that is left: for the search that was asked for, for the one of the least memory.
constexpr double kFirstShare = 0.4;
constexpr double kSecondShare = 0.25;

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
  std::stable_sort(
      all.points.begin(), all.points.end(), [](const Evaluated& a, const Evaluated& b) {
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

class FrontSearch {
 public:
  FrontSearch(const SearchSpace& space, const SearchOptions& options)
      : space_(space), options_(options), one_(options) {
    if (one_.memo == nullptr) one_.memo = &memo_;  // ceilings ask for the same points again
  }

  TradeOffs run(int ceilings, const FrontCounts& counts) {
    all_.search = look(kFirstShare);
    if (!all_.search.best || counts.most == 0) return finish();
    one_.patience = std::min(one_.patience, counts.patience);
    one_.most_evaluated = std::min(one_.most_evaluated, counts.most);
    // The least of all: where the front ends.
    one_.goal = SearchGoal::memory;
    look(kSecondShare);
    one_.goal = SearchGoal::throughput;
    const Bytes capacity = space_.prepared().cluster->gpu.memory.value;
    const auto [least, most] = memory_range(all_.points);
    for (int i = 1; i <= ceilings && least < most; ++i) {
      const double share = 1.0 - static_cast<double>(i) / (ceilings + 1);
      const double span = static_cast<double>((most - least).count());
      one_.limits.predict.reserve = capacity - (least + Bytes::nearest(span * share));
      look(1.0 / (ceilings - i + 1));
    }
    return finish();
  }

 private:
  // One more search, for a share of the time that is left.
  SearchResult look(double share) {
    const double left = options_.seconds - all_.seconds;
    if (left <= 0.0 || all_.search.interrupted) {
      all_.complete = false;
      return {};
    }
    one_.seconds = left * share;
    SearchResult found = search(space_, one_);
    all_.evaluated += found.evaluated;
    all_.seconds += found.seconds;
    all_.complete = all_.complete && !was_cut(found);
    all_.counted_out = all_.counted_out || found.stalled;
    add(std::exchange(found.fitting, {}), known_, all_);
    return found;
  }

  TradeOffs finish() {
    mark_front(all_);
    for (std::size_t i = 0; i < all_.points.size() && all_.search.best; ++i) {
      if (all_.points[i].point == all_.search.best->point) all_.best = i;
    }
    return std::move(all_);
  }

  const SearchSpace& space_;
  const SearchOptions& options_;
  simulator::SimulationMemo memo_;
  SearchOptions one_;
  TradeOffs all_;
  std::set<Point> known_;
};

}  // namespace

TradeOffs trade_offs(const SearchSpace& space,
                     const SearchOptions& options,
                     int ceilings,
                     const FrontCounts& counts) {
  return FrontSearch(space, options).run(ceilings, counts);
}

}  // namespace zeroplan::tuner
