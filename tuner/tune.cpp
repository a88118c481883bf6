#include "tuner/tune.hpp"

#include <utility>

#include "base/diagnostic.hpp"
#include "simulator/simulate.hpp"
#include "tuner/fit.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/missing_rows.hpp"
#include "tuner/search.hpp"
#include "tuner/tune_reasons.hpp"

namespace zeroplan::tuner {
namespace {

constexpr std::size_t kImpacts = 3;
constexpr double kSearchShare = 0.75;  // of the time limit

struct Found {
  std::unique_ptr<SearchSpace> space;
  SearchResult search;
};

// Numbers of one search join those of the whole.
void add(const SearchResult& part, SearchResult& sum) {
  sum.points += part.points;
  sum.evaluated += part.evaluated;
  sum.pruned += part.pruned;
  sum.seconds += part.seconds;
  sum.interrupted = sum.interrupted || part.interrupted;
  sum.out_of_time = sum.out_of_time || part.out_of_time;
  sum.stalled = sum.stalled || part.stalled;
  sum.unseen += part.unseen;
  sum.unseen_at_most = std::max(sum.unseen_at_most, part.unseen_at_most);
  for (const auto& [reason, row] : part.tally) {
    TallyRow& known = sum.tally[reason];
    if (known.count == 0) known.sample = row.sample;
    known.count += row.count;
  }
}

TuneOptions with_memo(TuneOptions options, simulator::SimulationMemo& memo) {
  options.search.memo = &memo;
  return options;
}

class Tuner {
 public:
  Tuner(const Scenario& scenario, const TuneOptions& options)
      : scenario_(scenario),
        options_(with_memo(options, memo_)),
        request_(read_request(options.words)),
        prepared_(prepare(scenario)),
        all_(options.search.seconds, options.search.interrupted),
        searches_(options.search.seconds * kSearchShare, options.search.interrupted) {}

  TuneAnswer run() {
    Found found = look();
    const bool nothing = !found.search.best && !over(found.search);
    for (const Packages& packages : nothing ? choices(*found.space) : std::vector<Packages>()) {
      const Scenario with = with_packages(scenario_, packages);
      Tuner tuner(with, left());
      Found other = tuner.look();
      if (other.search.best) return tuner.answer(std::move(other));
    }
    return answer(std::move(found));
  }

 private:
  Found look() const {
    Found found;
    switch (options_.objective) {
      case Objective::throughput:
      case Objective::memory:
        found = search_on(*prepared_.cluster);
        break;
      case Objective::gpus:
        found = on_fewest();
        break;
      case Objective::cost:
        found = on_cheapest();
        break;
    }
    return found;
  }

  // Packages that make a difference.
  std::vector<Packages> choices(const SearchSpace& space) const {
    return packages_to_try(scenario_, space.plan(Point()));
  }

  TuneOptions left() const {
    TuneOptions options = options_;
    options.search.seconds = all_.left();
    return options;
  }

  // The best point with all of them.
  std::optional<FasterWith> faster_with(const SearchSpace& space, const Evaluated& best) const {
    const std::vector<Packages> tried = choices(space);
    if (tried.empty()) return std::nullopt;
    const SearchSpace with(with_packages(scenario_, tried.back()), request_, space.prepared());
    const Evaluated seen = evaluate(with, best.point, options_.search.limits);
    if (!seen.fits || kSafeShare * seen.tokens_per_second <= best.tokens_per_second) {
      return std::nullopt;
    }
    return FasterWith{tried.back(), seen.tokens_per_second};
  }

  Found search_on(const Cluster& cluster) const {
    Prepared prepared = prepared_;
    prepared.cluster = std::make_shared<const Cluster>(cluster);
    Found found{std::make_unique<SearchSpace>(scenario_, request_, prepared), {}};
    SearchOptions options = options_.search;
    options.seconds = searches_.left();
    options.goal =
        options_.objective == Objective::memory ? SearchGoal::memory : SearchGoal::throughput;
    found.search = search(*found.space, options);
    return found;
  }

  std::vector<Cluster> clusters() const {
    std::vector<Cluster> all = smaller_clusters(*prepared_.cluster);
    all.push_back(*prepared_.cluster);
    return all;
  }

  bool over(const SearchResult& result) const { return result.interrupted || result.out_of_time; }

  Found on_fewest() const {
    Found last;
    SearchResult sum;
    bool proven = true;
    for (const Cluster& cluster : clusters()) {
      try {
        last = search_on(cluster);
      } catch (const InputError&) {
        if (cluster.total_gpus() == prepared_.cluster->total_gpus()) throw;
        continue;  // a global batch that so few ranks do not make
      }
      add(last.search, sum);
      if (last.search.best || over(last.search)) break;
    }
    proven = last.search.optimal;
    merge(std::move(sum), proven, last);
    return last;
  }

  // The price of a token goes with 1 / (tokens a second and GPU): the fastest per GPU is the
  // cheapest. Of equal ones the smaller cluster.
  Found on_cheapest() const {
    Found best;
    SearchResult sum;
    bool proven = true;
    for (const Cluster& cluster : clusters()) {
      if (cluster.gpus_per_node() != prepared_.cluster->gpus_per_node()) continue;
      Found found;
      try {
        found = search_on(cluster);
      } catch (const InputError&) {
        if (cluster.total_gpus() == prepared_.cluster->total_gpus()) throw;
        continue;
      }
      add(found.search, sum);
      const bool stop = over(found.search);
      proven = proven && (found.search.optimal || !found.search.best) && !stop;
      const bool better =
          !best.space ||
          (found.search.best && (!best.search.best || found.search.best->tokens_per_second >
                                                          best.search.best->tokens_per_second));
      if (better) best = std::move(found);
      if (stop) break;
    }
    merge(std::move(sum), proven && best.search.best, best);
    return best;
  }

  static void merge(SearchResult sum, bool proven, Found& found) {
    sum.best = found.search.best;
    sum.top = found.search.top;
    sum.keeps_room = found.search.keeps_room;
    sum.pareto = std::move(found.search.pareto);
    sum.optimal = proven;
    found.search = std::move(sum);
  }

  TuneAnswer answer(Found found) const {
    TuneAnswer answer;
    answer.scenario = scenario_;
    answer.needs = chosen_packages(scenario_);
    answer.search = std::move(found.search);
    const SearchSpace& space = *found.space;
    const auto shown = [&](const Evaluated& item) {
      return FrontPoint{space.plan(item.point), item, space.describe(item.point)};
    };
    for (const Evaluated& item : answer.search.pareto) answer.pareto.push_back(shown(item));
    if (answer.search.best && !(answer.search.top->point == answer.search.best->point)) {
      answer.top = shown(*answer.search.top);
    }
    answer.interrupted = answer.search.interrupted;
    if (answer.search.best) {
      add_reasons(space, answer);
    } else if (!over(answer.search)) {
      add_nearest(answer);
    }
    answer.interrupted = answer.interrupted || all_.interrupted();
    return answer;
  }

  void add_reasons(const SearchSpace& space, TuneAnswer& answer) const {
    const SearchOptions& options = options_.search;
    const Evaluated& best = *answer.search.best;
    answer.plan = space.plan(best.point);
    answer.result = simulator::simulate(*answer.plan, {.predict = options.limits.predict});
    if (answer.interrupted) return;
    MissingRows missing;
    missing.attempt("with other packages", [&] { answer.faster_with = faster_with(space, best); });
    std::optional<std::vector<KnobImpact>> impacts;
    missing.attempt("what the keys do",
                    [&] { impacts = knob_impacts(space, best, options, kImpacts, all_); });
    if (impacts) {
      answer.impacts = std::move(*impacts);
    } else {
      answer.cut_off.push_back(Reason::impacts);
    }
    missing.attempt("headroom", [&] { answer.headroom = headroom_of(space, best, options, all_); });
    if (!answer.headroom) answer.cut_off.push_back(Reason::headroom);
    missing.attempt("fewer GPUs", [&] {
      answer.fewest_gpus = options_.objective == Objective::gpus
                               ? space.prepared().cluster->total_gpus()
                               : fewest_gpus(scenario_, request_, prepared_, options, all_);
    });
    if (!answer.fewest_gpus) answer.cut_off.push_back(Reason::fewest_gpus);
    if (const Phrase sentence = missing.sentence(); !sentence.empty()) {
      answer.result.warnings.push_back(sentence);
    }
  }

  void add_nearest(TuneAnswer& answer) const {
    const SearchOptions& options = options_.search;
    answer.nearest = nearest_fit(scenario_, request_, prepared_, options, all_);
    if (answer.nearest) return;
    if (all_.over()) {
      answer.cut_off.push_back(Reason::nearest);
      return;
    }
    answer.remedies = fit(scenario_, options.limits.predict).remedies;
  }

  const Scenario& scenario_;
  simulator::SimulationMemo memo_;  // of all searches and of the reasons
  TuneOptions options_;
  SearchRequest request_;
  Prepared prepared_;
  Deadline all_;       // since the tuner was made
  Deadline searches_;  // a part of it
};

}  // namespace

TuneOptions usual_tune_options(const SearchCounts& counts, std::optional<double> gap) {
  TuneOptions options;
  SearchOptions& search = options.search;
  search.most_evaluated = counts.most;
  if (gap) {
    search.gap = *gap;
  } else {
    search.patience = counts.patience;
    search.room_share = kRoomShare;
  }
  return options;
}

TuneAnswer tune(const Scenario& scenario, const TuneOptions& options) {
  return Tuner(scenario, options).run();
}

}  // namespace zeroplan::tuner
