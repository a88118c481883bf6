#include "tuner/search_record.hpp"

#include <algorithm>
#include <utility>

#include "tuner/pareto.hpp"

namespace zeroplan::tuner {
namespace {

constexpr const char* kSlower = "slower than the choice";
constexpr const char* kFuller = "faster than the choice, at the GPU's limit";
constexpr const char* kLarger = "more GPU memory than the choice";
constexpr const char* kNoBetter = "as good as the choice within the gap, and no simpler";

}  // namespace

SearchRecord::SearchRecord(const SearchSpace& space, const SearchOptions& options)
    : space_(space), options_(options) {
  result_.points = space.points();
  for (const LeftOut& item : space.left_out()) note(item.reason, item.points, item.sample);
}

double SearchRecord::score_of(const Evaluated& item) const {
  if (options_.goal == SearchGoal::throughput) return item.tokens_per_second;
  return score_of_memory(item.gpu_memory);
}

SearchProgress SearchRecord::progress() const {
  return {result_.points, result_.evaluated, result_.pruned, result_.best};
}

const Evaluated& SearchRecord::top() const {
  return *std::max_element(
      fitting_.begin(), fitting_.end(), [&](const Evaluated& a, const Evaluated& b) {
        return score_of(a) != score_of(b) ? score_of(a) < score_of(b) : b.point < a.point;
      });
}

std::optional<bool> SearchRecord::known(const Point& point) const {
  const auto found = known_.find(point);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

bool SearchRecord::hopeless(double bound, int cost) const {
  if (!options_.use_bounds || !result_.best) return false;
  if (options_.goal == SearchGoal::any_fit) return true;
  if (bound > top_score_ * (1.0 + gap())) return false;
  return bound < top_score_ / tie() || cost >= best_cost_;
}

// Where few points come into question all of them are looked at.
double SearchRecord::gap() const {
  constexpr std::int64_t kLookedThrough = 48;
  return result_.evaluated < kLookedThrough ? 0.0 : options_.gap;
}

void SearchRecord::drop_unseen(std::int64_t points, double bound) {
  if (points <= 0) return;
  unseen_ += points;
  unseen_bound_ = std::max(unseen_bound_, bound);
}

// --- why points lost

void SearchRecord::note(const Phrase& reason, std::int64_t points, Json sample) {
  TallyRow& row = result_.tally[reason];
  if (row.count == 0) row.sample = std::move(sample);
  row.count += points;
}

void SearchRecord::drop(const char* reason,
                        const Branch& branch,
                        const char* what,
                        const Json& value) {
  const std::int64_t points = branch.points - known_in(branch);
  if (points <= 0) return;
  result_.pruned += points;
  // A branch is dropped often, and for few reasons: no phrase is made of one that is known.
  const auto known = result_.tally.find(std::string_view(reason));
  TallyRow& row = known != result_.tally.end() ? known->second : result_.tally[reason];
  if (row.count == 0) {
    row.sample = space_.describe(branch.point);
    row.sample[what] = value;
  }
  row.count += points;
}

std::int64_t SearchRecord::known_in(const Branch& branch) const {
  if (branch.depth == BoundDepth::whole) return known_.count(branch.point) > 0 ? 1 : 0;
  Point frame = branch.point;
  frame.at = {};
  const auto found = known_by_frame_.find(frame);
  if (found == known_by_frame_.end()) return 0;
  const std::vector<Axis>& axes = axes_of(space_, frame);
  const auto inside = [&](const Point& point) {
    if (branch.depth == BoundDepth::batch) return true;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (!is_inner(axes[a]) && point.at[a] != branch.point.at[a]) return false;
    }
    return true;
  };
  return std::count_if(found->second.begin(), found->second.end(), inside);
}

// --- what was looked at

void SearchRecord::remember(const Point& point, bool fits) {
  known_.emplace(point, fits);
  Point frame = point;
  frame.at = {};
  known_by_frame_[frame].push_back(point);
}

void SearchRecord::take_bounded(const char* reason, const Point& point) {
  remember(point, false);
  ++result_.pruned;
  note(reason, 1, space_.describe(point));
}

void SearchRecord::take(Evaluated item) {
  ++result_.evaluated;
  remember(item.point, item.fits);
  ++since_better_;
  if (!item.fits) {
    Json sample = space_.describe(item.point);
    sample["gpu_bytes"] = item.gpu_memory.count();
    sample["host_bytes"] = item.host_memory.count();
    note(item.why_not, 1, std::move(sample));
    return;
  }
  if (score_of(item) > top_score_) since_better_ = 0;
  top_score_ = std::max(top_score_, score_of(item));
  fitting_.push_back(std::move(item));
  choose_best();
}

// Its branch stands in the tally already.
void SearchRecord::take_witness(Evaluated item) {
  if (item.fits) {
    take(std::move(item));
    return;
  }
  ++result_.evaluated;
  remember(item.point, false);
}

double SearchRecord::score_to_reach() const {
  double with_room = 0.0;
  for (const Evaluated& item : fitting_) {
    if (!item.at_limit) with_room = std::max(with_room, score_of(item));
  }
  const bool within_gap = with_room >= top_score_ / tie();
  return !within_gap && with_room >= options_.room_share * top_score_ ? with_room : top_score_;
}

// The simplest of those that are as good as the best.
void SearchRecord::choose_best() {
  const double reach = score_to_reach();
  result_.keeps_room = reach < top_score_;
  const Evaluated* best = nullptr;
  int best_cost = 0;
  for (const Evaluated& item : fitting_) {
    if (score_of(item) < reach / tie() || (result_.keeps_room && item.at_limit)) continue;
    const int cost = space_.cost(item.point);
    const auto effort = std::pair(item.at_limit, cost);
    const bool simpler = best == nullptr || effort < std::pair(best->at_limit, best_cost);
    const bool as_simple = best != nullptr && effort == std::pair(best->at_limit, best_cost);
    const bool better =
        as_simple && (score_of(item) > score_of(*best) ||
                      (score_of(item) == score_of(*best) && item.point < best->point));
    if (!simpler && !better) continue;
    best = &item;
    best_cost = cost;
  }
  result_.best = *best;
  best_cost_ = best_cost;
}

SearchResult SearchRecord::finish(double seconds, bool interrupted, bool out_of_time) {
  const bool memory = options_.goal != SearchGoal::throughput;
  for (const Evaluated& item : fitting_) {
    if (result_.best && item.point == result_.best->point) continue;
    Json sample = space_.describe(item.point);
    sample["tokens_per_second_per_gpu"] = item.tokens_per_second;
    sample["gpu_bytes"] = item.gpu_memory.count();
    const bool as_good = score_of(item) >= score_of(*result_.best);
    const bool beyond = score_of(item) > score_of(*result_.best) * tie();
    note(beyond    ? kFuller
         : as_good ? kNoBetter
                   : (memory ? kLarger : kSlower),
         1,
         std::move(sample));
  }
  result_.pareto = result_.best ? front_beside(*result_.best, fitting_) : pareto_front(fitting_);
  if (result_.best) result_.top = top();
  result_.fitting = std::move(fitting_);
  result_.interrupted = interrupted;
  result_.out_of_time = !interrupted && out_of_time;
  result_.unseen = std::min(unseen_, result_.points - result_.evaluated);
  result_.pruned = result_.points - result_.evaluated - result_.unseen;
  const bool counted_out = stalled() || result_.evaluated >= options_.most_evaluated;
  result_.stalled = unseen_ > 0 && counted_out && !interrupted && !out_of_time;
  if (unseen_ > 0 && result_.best) {
    result_.unseen_at_most = std::max(0.0, unseen_bound_ / score_of(*result_.best) - 1.0);
  }
  // The rest was left out by a bound.
  const bool none_faster = unseen_ == 0 || unseen_bound_ <= top_score_ * tie();
  result_.optimal = result_.best && none_faster && !interrupted && !out_of_time;
  result_.seconds = seconds;
  return std::move(result_);
}

}  // namespace zeroplan::tuner
