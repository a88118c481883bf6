// What a search has looked at, and what came of it: which points are known, which of them is best,
// why the others lost. Not for several threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/search_branch.hpp"
#include "tuner/search_result.hpp"

namespace zeroplan::tuner {

class SearchRecord {
 public:
  // Both must outlive the record.
  SearchRecord(const SearchSpace& space, const SearchOptions& options);

  // The larger the better.
  double score_of(const Evaluated& item) const;
  double top_score() const { return top_score_; }
  const std::optional<Evaluated>& best() const { return result_.best; }
  std::int64_t evaluated() const { return result_.evaluated; }
  SearchProgress progress() const;
  // Of the highest score; precondition: something fits.
  const Evaluated& top() const;

  // Does a point fit? Empty where it was neither simulated nor bounded alone.
  std::optional<bool> known(const Point& point) const;
  // Can nothing of this bound and cost change the answer?
  bool hopeless(double bound, int cost) const;

  // Points that were left out before the search.
  void note(const Phrase& reason, std::int64_t points, Json sample);
  // A branch is left out. What of it was simulated already has its own reason. `what` and `value`
  // go to the sample.
  void drop(const char* reason, const Branch& branch, const char* what, const Json& value);
  // What a stop leaves: not looked at, and no better than `bound`.
  void drop_unseen(std::int64_t points, double bound);
  // Was none of the last simulated ones better?
  bool stalled() const { return result_.best && since_better_ >= options_.patience; }
  // A point that a bound of its own leaves out.
  void take_bounded(const char* reason, const Point& point);
  // A point that was simulated.
  void take(Evaluated item);
  // One that a bound left out and that was simulated all the same.
  void take_witness(Evaluated item);
  // Will the next point that is lost for this reason be shown?
  bool shows_next(const Phrase& reason) const { return result_.tally.count(reason) == 0; }

  // Ends the record.
  SearchResult finish(double seconds, bool interrupted, bool out_of_time);

 private:
  // Scores that differ by less than a prediction is off count as equal.
  double tie() const { return 1.0 + options_.gap; }
  double gap() const;
  std::int64_t known_in(const Branch& branch) const;
  void remember(const Point& point, bool fits);
  void choose_best();
  // The best score that the answer is compared with: of all, or of the points with room.
  double score_to_reach() const;

  const SearchSpace& space_;
  const SearchOptions& options_;
  SearchResult result_;
  std::vector<Evaluated> fitting_;
  std::map<Point, bool> known_;
  std::map<Point, std::vector<Point>> known_by_frame_;  // by the point without its axes
  double top_score_ = 0.0;
  int best_cost_ = 0;
  std::int64_t unseen_ = 0;
  double unseen_bound_ = 0.0;
  std::int64_t since_better_ = 0;
};

}  // namespace zeroplan::tuner
