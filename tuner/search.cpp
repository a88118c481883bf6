#include "tuner/search.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "model/diagnostic.hpp"
#include "simulator/simulate.hpp"
#include "tuner/pareto.hpp"
#include "tuner/search_twins.hpp"
#include "tuner/worker_pool.hpp"

namespace zeroplan {
namespace {

constexpr std::size_t kRound = 16;      // points that are simulated before the next decision
constexpr std::size_t kFirstRound = 4;  // of a branch
constexpr std::int64_t kPatience = 24;  // simulations without one that fits before a branch waits
constexpr const char* kSlower = "slower than the best";
constexpr const char* kSlowerByBound = "slower than the best, by a bound";
constexpr const char* kLargerByBound = "more GPU memory than the best, by a bound";
constexpr const char* kLarger = "more GPU memory than the best";
constexpr const char* kNoRoomByBound = "does not fit the GPU, by a bound";
constexpr const char* kHost = "does not fit host memory or drives";
constexpr const char* kTwin = "does exactly what a simpler point does";
constexpr const char* kTooSlowByBound = "below --min-throughput, by a bound";

double count(Bytes bytes) { return static_cast<double>(bytes.count()); }

// A subtree: what is decided so far, and what it may still hold.
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

class Search {
 public:
  Search(const SearchSpace& space, const SearchOptions& options)
      : space_(space),
        options_(options),
        bounds_(space, options.limits.predict),
        pool_(threads(options.jobs)),
        began_(std::chrono::steady_clock::now()),
        memo_(options.memo != nullptr ? *options.memo : own_memo_),
        room_(space.prepared().cluster->gpu.memory.value - options.limits.predict.reserve) {
    result_.points = space.points();
  }

  SearchResult run() {
    for (const LeftOut& item : space_.left_out()) note(item.reason, item.points, item.sample);
    std::vector<Branch> frames = all_frames();
    if (options_.use_bounds) {
      seed(frames);
      climb();
    }
    explore(open_frames(frames));
    drain_doubtful();
    finish();
    return std::move(result_);
  }

 private:
  static std::size_t threads(int jobs) {
    if (jobs > 0) return static_cast<std::size_t>(jobs);
    return std::max(1U, std::thread::hardware_concurrency());
  }

  // --- scores

  double score_of(const Evaluated& item) const {
    if (options_.goal != SearchGoal::throughput) return 1e18 / count(item.gpu_memory);
    return item.tokens_per_second;
  }

  double bound_of(const Point& point, BoundDepth depth) const {
    if (options_.goal != SearchGoal::throughput) {
      return 1e18 / count(bounds_.gpu_memory(point, depth));
    }
    return bounds_.tokens_per_second(point, depth);
  }

  double tie() const { return 1.0 + 0.5 * options_.gap; }

  // Can nothing of this bound and cost change the answer?
  bool hopeless(double bound, int cost) const {
    if (!options_.use_bounds || !result_.best) return false;
    if (options_.goal == SearchGoal::any_fit) return true;
    if (bound > top_score_ * (1.0 + options_.gap)) return false;
    return bound < top_score_ / tie() || cost >= best_cost_;
  }

  // --- branches

  std::vector<Branch> all_frames() {
    std::vector<Branch> frames;
    for (std::size_t s = 0; s < space_.strategies().size(); ++s) {
      for (std::size_t c = 0; c < space_.checkpointings().size(); ++c) {
        for (std::size_t b = 0; b < space_.batches().size(); ++b) {
          Point point;
          point.strategy = static_cast<std::int32_t>(s);
          point.checkpointing = static_cast<std::int32_t>(c);
          point.batch = static_cast<std::int32_t>(b);
          add_frame(point, frames);
        }
      }
    }
    // Of bounds that differ by rounding alone, more accumulation is the better guess.
    std::stable_sort(frames.begin(), frames.end(), [&](const Branch& a, const Branch& b) {
      const auto bound_a = static_cast<float>(a.bound);
      const auto bound_b = static_cast<float>(b.bound);
      return bound_a != bound_b ? bound_a > bound_b : accumulation(a) > accumulation(b);
    });
    return frames;
  }

  std::int64_t accumulation(const Branch& branch) const {
    return space_.batches()[static_cast<std::size_t>(branch.point.batch)].accumulation;
  }

  void add_frame(const Point& point, std::vector<Branch>& frames) {
    Branch frame{point, BoundDepth::batch, std::numeric_limits<double>::infinity(), 0, 0};
    frame.points = space_.strategies()[static_cast<std::size_t>(point.strategy)].points;
    frame.cost = space_.cost(point);
    if (!options_.use_bounds) {
      frames.push_back(frame);
      return;
    }
    if (drop_for_memory(frame) || drop_for_speed(frame)) return;
    frame.bound = bound_of(point, BoundDepth::batch);
    frames.push_back(frame);
  }

  bool drop_for_memory(const Branch& branch) {
    const Bytes least = bounds_.gpu_memory(branch.point, branch.depth);
    if (least <= room_) return false;
    drop(kNoRoomByBound, branch, "gpu_bytes_at_least", least.count());
    return true;
  }

  bool drop_for_speed(const Branch& branch) {
    const double wanted = options_.limits.tokens_per_second;
    if (wanted <= 0.0) return false;
    const double most = bounds_.tokens_per_second(branch.point, branch.depth);
    if (most >= wanted) return false;
    drop(kTooSlowByBound, branch, "tokens_per_second_per_gpu_at_most", most);
    return true;
  }

  bool drop_for_host(const Branch& branch) {
    if (may_run(branch.point)) return false;
    drop(kHost, branch, "host_bytes", bounds_.host(branch.point).peak.count());
    return true;
  }

  bool drop_as_hopeless(const Branch& branch) {
    if (!hopeless(branch.bound, branch.cost)) return false;
    if (options_.goal != SearchGoal::throughput) {
      const auto least = static_cast<std::int64_t>(1e18 / branch.bound);
      drop(kLargerByBound, branch, "gpu_bytes_at_least", least);
    } else {
      drop(kSlowerByBound, branch, "tokens_per_second_per_gpu_at_most", branch.bound);
    }
    return true;
  }

  // Those that were simulated already have their own reason. `what` and `value` go to the sample.
  template <typename T>
  void drop(const char* reason, const Branch& branch, const char* what, T value) {
    const std::int64_t points = branch.points - known_in(branch);
    if (points <= 0) return;
    result_.pruned += points;
    TallyRow& row = result_.tally[reason];
    if (row.count == 0) {
      row.sample = space_.describe(branch.point);
      row.sample[what] = value;
    }
    row.count += points;
  }

  std::int64_t known_in(const Branch& branch) const {
    if (branch.depth == BoundDepth::whole) return known_.count(branch.point) > 0 ? 1 : 0;
    Point frame = branch.point;
    frame.at = {};
    const auto found = known_by_frame_.find(frame);
    if (found == known_by_frame_.end()) return 0;
    const std::vector<Axis>& axes = axes_of(frame);
    const auto inside = [&](const Point& point) {
      if (branch.depth == BoundDepth::batch) return true;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        if (!is_inner(axes[a]) && point.at[a] != branch.point.at[a]) return false;
      }
      return true;
    };
    return std::count_if(found->second.begin(), found->second.end(), inside);
  }

  void remember(const Point& point, bool fits) {
    known_.emplace(point, fits);
    Point frame = point;
    frame.at = {};
    known_by_frame_[frame].push_back(point);
  }

  void note(const std::string& reason, std::int64_t points, Json sample) {
    TallyRow& row = result_.tally[reason];
    if (row.count == 0) row.sample = std::move(sample);
    row.count += points;
  }

  // The default of every frame, the best bound first: a good answer early makes the rest short. One
  // accumulation of each is enough.
  void seed(const std::vector<Branch>& frames) {
    std::vector<Point> seen;
    for (const Branch& frame : frames) {
      if (stopped()) return;
      Point alike = frame.point;
      alike.batch = static_cast<std::int32_t>(
          space_.batches()[static_cast<std::size_t>(frame.point.batch)].micro_batch);
      if (std::find(seen.begin(), seen.end(), alike) != seen.end()) continue;
      seen.push_back(alike);
      if (hopeless(frame.bound, frame.cost)) continue;
      if (!may_run(frame.point)) continue;
      propose(frame.point);
    }
    flush_round();
  }

  // From the best so far, one knob at a time, as long as that makes it better: what is left out
  // afterwards hangs on how good the best is, and a branch of points that all just do not fit may
  // take thousands of simulations.
  void climb() {
    if (options_.goal == SearchGoal::any_fit) return;
    while (result_.best && top_score_ > climbed_to_ && !stopped()) {
      const double before = climbed_to_ = top_score_;
      const Point from = fastest();
      const std::vector<Axis>& axes = axes_of(from);
      for (std::size_t a = 0; a < axes.size(); ++a) {
        for (std::size_t v = 0; v < axes[a].values.size(); ++v) {
          Point point = from;
          point.at[a] = static_cast<std::uint8_t>(v);
          if (v == from.at[a] || bound_of(point, BoundDepth::whole) <= before) continue;
          if (!may_run(point)) continue;
          propose(point);
        }
      }
      flush_round();
    }
  }

  // Do host memory and drives suffice?
  bool may_run(const Point& point) const {
    const HostState& host = bounds_.host(point);
    return host.probability >= options_.limits.predict.confidence &&
           host.peak <= options_.limits.host_memory;
  }

  const Point& fastest() const {
    return std::max_element(fitting_.begin(),
                            fitting_.end(),
                            [&](const Evaluated& a, const Evaluated& b) {
                              return score_of(a) != score_of(b) ? score_of(a) < score_of(b)
                                                                : b.point < a.point;
                            })
        ->point;
  }

  // Opens frames: every choice of the tail's knobs is a branch.
  std::vector<Branch> open_frames(const std::vector<Branch>& frames) {
    std::vector<Branch> branches;
    for (const Branch& frame : frames) {
      if (stopped()) {
        drop_unseen(frame.points);
        continue;
      }
      if (drop_as_hopeless(frame)) continue;
      std::int64_t below = 1;
      for (const Axis& axis : axes_of(frame.point)) {
        if (is_inner(axis)) below *= static_cast<std::int64_t>(axis.values.size());
      }
      enumerate(frame.point, /*inner=*/false, [&](const Point& point) {
        Branch branch{point, BoundDepth::tail, frame.bound, space_.cost(point), below};
        if (options_.use_bounds && (drop_for_host(branch) || !tighten(branch, BoundDepth::tail) ||
                                    !tighten(branch, BoundDepth::messages))) {
          return;
        }
        branches.push_back(branch);
      });
    }
    std::sort(branches.begin(), branches.end(), [](const Branch& a, const Branch& b) {
      return std::tie(b.bound, a.cost, a.point) < std::tie(a.bound, b.cost, b.point);
    });
    return branches;
  }

  // False: the closer bound has left the branch out.
  bool tighten(Branch& branch, BoundDepth depth) {
    branch.depth = depth;
    const bool memory = options_.goal != SearchGoal::throughput;
    if (depth != BoundDepth::messages && drop_for_memory(branch)) return false;
    if (depth == BoundDepth::messages && memory) return true;
    branch.bound = std::min(branch.bound, bound_of(branch.point, depth));
    return !drop_as_hopeless(branch) && !drop_for_speed(branch);
  }

  void explore(const std::vector<Branch>& branches) {
    for (const Branch& branch : branches) {
      if (stopped()) {
        drop_unseen(branch.points);
      } else if (!drop_as_hopeless(branch) && !drop_as_twin(branch)) {
        open_leaves(branch);
      }
    }
  }

  // Was a branch opened whose ranks do the same, at no greater cost and with no more host memory?
  bool drop_as_twin(const Branch& branch) {
    if (!options_.use_bounds) return false;
    std::vector<Branch>& alike = opened_[tail_print(branch.point)];
    const HostState& host = bounds_.host(branch.point);
    for (const Branch& other : alike) {
      const HostState& there = bounds_.host(other.point);
      const bool no_simpler =
          std::tie(other.cost, other.point) < std::tie(branch.cost, branch.point);
      if (!no_simpler || there.probability < host.probability || there.peak > host.peak) continue;
      drop(kTwin, branch, "like", space_.describe(other.point));
      return true;
    }
    alike.push_back(branch);
    return false;
  }

  // Its halves: the order of a map.
  std::pair<std::uint64_t, std::uint64_t> tail_print(const Point& point) const {
    const Fingerprint print = tail_fingerprint(space_, point);
    return {print.high, print.low};
  }

  // What a stop leaves: neither looked at nor bounded.
  void drop_unseen(std::int64_t points) { unseen_ += points; }

  void open_leaves(const Branch& branch) {
    Leaves leaves;
    leaves.bound = branch.bound;
    enumerate(branch.point, /*inner=*/true, [&](const Point& point) {
      Branch leaf{point, BoundDepth::whole, branch.bound, space_.cost(point), 1};
      if (options_.use_bounds && !tighten(leaf, BoundDepth::whole)) return;
      leaves.points.emplace_back(leaf.cost, point);
    });
    std::stable_sort(leaves.points.begin(), leaves.points.end());
    work_through(leaves, options_.use_bounds ? kPatience : std::numeric_limits<int>::max());
    if (leaves.next >= leaves.points.size()) return;
    doubtful_.push_back(std::move(leaves));
    climb();
  }

  // Until the branch is done, or nothing of it fitted `patience` times.
  void work_through(Leaves& leaves, std::int64_t patience) {
    while (leaves.next < leaves.points.size() && !stopped()) {
      std::vector<Point> taken;
      const std::size_t round = leaves.tried == 0 ? kFirstRound : kRound;
      while (leaves.next < leaves.points.size() && taken.size() < round) {
        const auto& [cost, point] = leaves.points[leaves.next++];
        Branch leaf{point, BoundDepth::whole, leaves.bound, cost, 1};
        if (options_.use_bounds) {
          leaf.bound = std::min(leaf.bound, bound_of(point, BoundDepth::whole));
          if (drop_as_hopeless(leaf)) continue;
        }
        taken.push_back(point);
      }
      if (taken.empty()) continue;
      const std::int64_t fitted = simulate_all(taken);
      leaves.tried += static_cast<std::int64_t>(taken.size());
      leaves.fitted += fitted;
      if (leaves.fitted == 0 && leaves.tried >= patience) return;
    }
  }

  // Branches of which nothing fitted so far: last, when the best is known.
  void drain_doubtful() {
    std::stable_sort(doubtful_.begin(), doubtful_.end(), [](const Leaves& a, const Leaves& b) {
      return a.bound > b.bound;
    });
    for (Leaves& leaves : doubtful_) {
      work_through(leaves, std::numeric_limits<std::int64_t>::max());
      drop_unseen(static_cast<std::int64_t>(leaves.points.size() - leaves.next));
    }
  }

  // --- enumeration

  const std::vector<Axis>& axes_of(const Point& point) const {
    return space_.strategies()[static_cast<std::size_t>(point.strategy)].axes;
  }
  static bool is_inner(const Axis& axis) {
    return axis.role == AxisRole::gather || axis.role == AxisRole::reduce;
  }

  template <typename Visit>
  void enumerate(Point point, bool inner, Visit&& visit) const {
    const std::vector<Axis>& axes = axes_of(point);
    std::vector<std::size_t> open;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      if (is_inner(axes[a]) == inner) open.push_back(a);
    }
    while (true) {
      visit(static_cast<const Point&>(point));
      std::size_t i = 0;
      for (; i < open.size(); ++i) {
        if (++point.at[open[i]] < axes[open[i]].values.size()) break;
        point.at[open[i]] = 0;
      }
      if (i == open.size()) return;
    }
  }

  // --- simulation

  void propose(const Point& point) {
    round_.push_back(point);
    if (round_.size() == kRound) flush_round();
  }

  void flush_round() {
    if (round_.empty()) return;
    simulate_all(std::exchange(round_, {}));
  }

  // How many of them fit.
  std::int64_t simulate_all(const std::vector<Point>& points) {
    std::vector<Point> fresh;
    std::int64_t fitted = 0;
    for (const Point& point : points) {
      const auto seen = known_.find(point);
      if (seen == known_.end()) fresh.push_back(point);
      if (seen != known_.end() && seen->second) ++fitted;
    }
    std::vector<std::optional<Evaluated>> results(fresh.size());
    std::vector<char> bounded(fresh.size(), 0);
    pool_.run(fresh.size(), [&](std::size_t i) {
      if (stopped()) return;
      bounded[i] = options_.use_bounds && surely_too_large(fresh[i]) ? 1 : 0;
      if (bounded[i] != 0) return;
      results[i] = evaluate(space_, fresh[i], options_.limits, &memo_, Numbers::of_what_fits);
    });
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      if (bounded[i] != 0) {
        remember(fresh[i], false);
        ++result_.pruned;
        note(kNoRoomByBound, 1, space_.describe(fresh[i]));
        continue;
      }
      if (!results[i]) {
        drop_unseen(1);
        continue;
      }
      ++result_.evaluated;
      remember(fresh[i], results[i]->fits);
      if (results[i]->fits) ++fitted;
      take(std::move(*results[i]));
    }
    report();
    return fitted;
  }

  bool surely_too_large(const Point& point) const {
    try {
      return !bounds_.may_fit(point);
    } catch (const InputError&) {
      return false;  // evaluate() says why
    }
  }

  void take(Evaluated item) {
    if (!item.fits) {
      // Of those that are shown all numbers are wanted.
      if (result_.tally[item.why_not].count == 0) {
        item = evaluate(space_, item.point, options_.limits, &memo_);
      }
      Json sample = space_.describe(item.point);
      sample["gpu_bytes"] = item.gpu_memory.count();
      sample["host_bytes"] = item.host_memory.count();
      note(item.why_not, 1, std::move(sample));
      return;
    }
    top_score_ = std::max(top_score_, score_of(item));
    fitting_.push_back(std::move(item));
    choose_best();
  }

  // The simplest of those that are as good as the best.
  void choose_best() {
    const Evaluated* best = nullptr;
    int best_cost = 0;
    for (const Evaluated& item : fitting_) {
      if (score_of(item) < top_score_ / tie()) continue;
      const int cost = space_.cost(item.point);
      const bool simpler = best == nullptr || cost < best_cost;
      const bool as_simple = best != nullptr && cost == best_cost;
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

  // Asked by the workers, too.
  bool stopped() const {
    const bool found = options_.goal == SearchGoal::any_fit && result_.best.has_value();
    return found || interrupted() || out_of_time() || result_.evaluated >= options_.most_evaluated;
  }
  bool interrupted() const {
    return options_.interrupted != nullptr && options_.interrupted->load();
  }

  bool out_of_time() const { return elapsed() > options_.seconds; }

  double elapsed() const {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - began_;
    return time.count();
  }

  void report() const {
    if (!options_.on_progress) return;
    options_.on_progress({result_.points, result_.evaluated, result_.pruned, result_.best});
  }

  void finish() {
    const bool memory = options_.goal != SearchGoal::throughput;
    for (const Evaluated& item : fitting_) {
      if (result_.best && item.point == result_.best->point) continue;
      Json sample = space_.describe(item.point);
      sample["tokens_per_second_per_gpu"] = item.tokens_per_second;
      sample["gpu_bytes"] = item.gpu_memory.count();
      const bool as_good = score_of(item) >= score_of(*result_.best);
      note(as_good ? "no simpler and no better than the best" : (memory ? kLarger : kSlower),
           1,
           std::move(sample));
    }
    result_.pareto = pareto_front(fitting_);
    result_.fitting = std::move(fitting_);
    result_.interrupted = interrupted();
    result_.out_of_time = !result_.interrupted && out_of_time();
    result_.pruned = result_.points - result_.evaluated;
    // The rest was left out by a bound.
    result_.optimal = result_.best && unseen_ == 0 && !result_.interrupted && !result_.out_of_time;
    result_.seconds = elapsed();
  }

  const SearchSpace& space_;
  const SearchOptions& options_;
  SearchBounds bounds_;
  WorkerPool pool_;
  std::chrono::steady_clock::time_point began_;
  SimulationMemo own_memo_;
  SimulationMemo& memo_;
  Bytes room_;
  SearchResult result_;
  std::vector<Evaluated> fitting_;
  std::map<Point, bool> known_;                         // simulated or bounded alone: does it fit?
  std::map<Point, std::vector<Point>> known_by_frame_;  // by the point without its axes
  std::vector<Point> round_;
  std::vector<Leaves> doubtful_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Branch>> opened_;
  double top_score_ = 0.0;
  double climbed_to_ = 0.0;  // the best score from which all neighbours were tried
  int best_cost_ = 0;
  std::int64_t unseen_ = 0;
};

}  // namespace

SearchResult search(const SearchSpace& space, const SearchOptions& options) {
  return Search(space, options).run();
}

}  // namespace zeroplan
