#include "tuner/search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include "base/defect.hpp"
#include "base/parallel_for.hpp"
#include "simulator/simulate.hpp"
#include "tuner/search_branch.hpp"
#include "tuner/search_equivalence.hpp"
#include "tuner/search_record.hpp"

namespace zeroplan::tuner {
namespace {

constexpr std::size_t kRound = 16;      // points that are simulated before the next decision
constexpr std::size_t kFirstRound = 4;  // of a branch
constexpr std::size_t kLookedAt = 256;  // leaves whose bounds are asked for at once
constexpr std::int64_t kPatience = 24;  // simulations without one that fits before a branch waits
constexpr const char* kSlowerByBound =
    "no faster than the fastest by more than the gap, by a bound";
constexpr const char* kLargerByBound =
    "no smaller than the smallest by more than the gap, by a bound";
constexpr const char* kNoRoomByBound = "does not fit the GPU, by a bound";
constexpr const char* kHost = "does not fit host memory or drives";
constexpr const char* kTwin = "does exactly what a simpler point does";
constexpr const char* kTooSlowByBound = "below --min-throughput, by a bound";

class Search {
 public:
  Search(const SearchSpace& space, const SearchOptions& options)
      : space_(space),
        options_(options),
        bounds_(space, options.limits.predict, threads(options.jobs)),
        pool_(threads(options.jobs)),
        began_(std::chrono::steady_clock::now()),
        memo_(options.memo != nullptr ? *options.memo : own_memo_),
        room_(space.prepared().cluster->gpu.memory.value - options.limits.predict.reserve),
        record_(space, options) {}

  SearchResult run() {
    report();  // from here on there is an answer, if the best so far is nothing
    std::vector<Branch> frames = all_frames();
    if (options_.use_bounds) {
      seed(frames);
      climb();
    }
    explore(open_frames(frames));
    drain_doubtful();
    try_one();
    return record_.finish(elapsed(), interrupted(), out_of_time());
  }

 private:
  static std::size_t threads(int jobs) {
    return static_cast<std::size_t>(jobs > 0 ? jobs : machine_threads());
  }

  // A bound that a defect ends leaves nothing out: who simulates the point meets it and names it.
  template <typename Value, typename Bound>
  static Value sound(Bound&& bound, Value otherwise) {
    Value value = otherwise;
    return defect_in([&] { value = bound(); }).empty() ? value : otherwise;
  }

  double bound_of(const Point& point, BoundDepth depth) const {
    return sound(
        [&] {
          if (options_.goal != SearchGoal::throughput) {
            return score_of_memory(bounds_.gpu_memory(point, depth));
          }
          return bounds_.tokens_per_second(point, depth);
        },
        std::numeric_limits<double>::infinity());
  }

  // "Nothing fits" is said after something was tried: where bounds left out all there is, the point
  // that needs least GPU memory by them is simulated all the same.
  void try_one() {
    if (record_.evaluated() > 0 || !leanest_ || stopped()) return;
    record_.take_witness(evaluate(space_, *leanest_, options_.limits, &memo_));
    report();
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
    const Bytes least =
        sound([&] { return bounds_.gpu_memory(branch.point, branch.depth); }, Bytes::zero());
    if (!leanest_ || least < leanest_memory_) {
      leanest_ = branch.point;
      leanest_memory_ = least;
    }
    if (least <= room_) return false;
    record_.drop(kNoRoomByBound, branch, "gpu_bytes_at_least", least.count());
    return true;
  }

  bool drop_for_speed(const Branch& branch) {
    const double wanted = options_.limits.tokens_per_second;
    if (wanted <= 0.0) return false;
    const double most = sound([&] { return bounds_.tokens_per_second(branch.point, branch.depth); },
                              std::numeric_limits<double>::infinity());
    if (most >= wanted) return false;
    record_.drop(kTooSlowByBound, branch, "tokens_per_second_per_gpu_at_most", most);
    return true;
  }

  bool drop_for_host(const Branch& branch) {
    if (may_run(branch.point)) return false;
    record_.drop(kHost, branch, "host_bytes", bounds_.host(branch.point).peak.count());
    return true;
  }

  bool drop_as_hopeless(const Branch& branch) {
    if (!record_.hopeless(branch.bound, branch.cost)) return false;
    if (options_.goal != SearchGoal::throughput) {
      const auto least = static_cast<std::int64_t>(1e18 / branch.bound);
      record_.drop(kLargerByBound, branch, "gpu_bytes_at_least", least);
    } else {
      record_.drop(kSlowerByBound, branch, "tokens_per_second_per_gpu_at_most", branch.bound);
    }
    return true;
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
      if (record_.hopeless(frame.bound, frame.cost)) continue;
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
    while (record_.best() && record_.top_score() > climbed_to_ && !stopped()) {
      const double before = climbed_to_ = record_.top_score();
      const Point from = record_.top().point;
      const std::vector<Axis>& axes = axes_of(space_, from);
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
    return sound(
        [&] {
          const HostState& host = bounds_.host(point);
          return host.probability >= options_.limits.predict.confidence &&
                 host.peak <= options_.limits.host_memory;
        },
        true);
  }

  // Opens frames: every choice of the tail's knobs is a branch.
  std::vector<Branch> open_frames(const std::vector<Branch>& frames) {
    std::vector<Branch> branches;
    for (const Branch& frame : frames) {
      if (drop_as_hopeless(frame)) continue;
      if (stopped()) {
        record_.drop_unseen(frame.points, frame.bound);
        continue;
      }
      std::int64_t below = 1;
      for (const Axis& axis : axes_of(space_, frame.point)) {
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
      if (drop_as_hopeless(branch)) continue;
      if (gives_up()) {
        record_.drop_unseen(branch.points, branch.bound);
      } else if (!drop_as_equivalent(branch)) {
        open_leaves(branch);
      }
    }
  }

  // Was a branch opened whose ranks do the same, at no greater cost and with no more host memory?
  bool drop_as_equivalent(const Branch& branch) {
    if (!options_.use_bounds) return false;
    return sound([&] { return find_equivalent(branch); }, false);
  }

  bool find_equivalent(const Branch& branch) {
    std::vector<Branch>& alike = opened_[tail_print(branch.point)];
    const HostState& host = bounds_.host(branch.point);
    for (const Branch& other : alike) {
      const HostState& there = bounds_.host(other.point);
      const bool no_simpler =
          std::tie(other.cost, other.point) < std::tie(branch.cost, branch.point);
      if (!no_simpler || there.probability < host.probability || there.peak > host.peak) continue;
      record_.drop(kTwin, branch, "like", space_.describe(other.point));
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

  void open_leaves(const Branch& branch) {
    Leaves leaves;
    leaves.bound = branch.bound;
    enumerate(branch.point, /*inner=*/true, [&](const Point& point) {
      Branch leaf{point, BoundDepth::whole, branch.bound, space_.cost(point), 1};
      if (options_.use_bounds && !tighten(leaf, BoundDepth::whole)) return;
      leaves.points.emplace_back(leaf.cost, point);
    });
    std::stable_sort(leaves.points.begin(), leaves.points.end());
    if (stopped()) {
      close(leaves);
      return;
    }
    work_through(leaves, options_.use_bounds ? kPatience : std::numeric_limits<int>::max());
    if (leaves.next >= leaves.points.size()) return;
    doubtful_.push_back(std::move(leaves));
    climb();
  }

  // Until the branch is done, or nothing of it fitted `patience` times.
  void work_through(Leaves& leaves, std::int64_t patience) {
    while (leaves.next < leaves.points.size() && !stopped()) {
      const std::size_t round = leaves.tried == 0 ? kFirstRound : kRound;
      std::vector<Point> taken;
      for (const Branch& leaf : next_open(leaves, round)) taken.push_back(leaf.point);
      if (taken.empty()) continue;
      const std::int64_t fitted = simulate_all(taken);
      leaves.tried += static_cast<std::int64_t>(taken.size());
      leaves.fitted += fitted;
      if (leaves.fitted == 0 && leaves.tried >= patience) return;
    }
  }

  // The closest bound of each.
  void ask_clocks(std::vector<Branch>& leaves) {
    if (options_.goal != SearchGoal::throughput) return;
    pool_.run(leaves.size(), [&](std::size_t i) {
      leaves[i].bound = std::min(leaves[i].bound, bound_of(leaves[i].point, BoundDepth::clocks));
    });
  }

  // Up to `most` leaves that no bound leaves out, the next ones.
  std::vector<Branch> next_open(Leaves& leaves, std::size_t most) {
    std::vector<Branch> open;
    while (leaves.next < leaves.points.size() && open.size() < most) {
      const auto& [cost, point] = leaves.points[leaves.next++];
      Branch leaf{point, BoundDepth::whole, leaves.bound, cost, 1};
      if (options_.use_bounds) {
        leaf.bound = std::min(leaf.bound, bound_of(point, BoundDepth::whole));
        if (drop_as_hopeless(leaf)) continue;
      }
      open.push_back(leaf);
    }
    if (!options_.use_bounds) return open;
    ask_clocks(open);
    const auto closed = std::remove_if(
        open.begin(), open.end(), [&](const Branch& leaf) { return drop_as_hopeless(leaf); });
    open.erase(closed, open.end());
    return open;
  }

  // What is not simulated any more: what bounds leave out of it is, the rest stays unseen.
  void close(Leaves& leaves) {
    while (leaves.next < leaves.points.size()) {
      if (gives_up()) {
        record_.drop_unseen(static_cast<std::int64_t>(leaves.points.size() - leaves.next),
                            leaves.bound);
        return;
      }
      for (const Branch& leaf : next_open(leaves, kLookedAt)) record_.drop_unseen(1, leaf.bound);
    }
  }

  // Branches of which nothing fitted so far: last, when the best is known.
  void drain_doubtful() {
    std::stable_sort(doubtful_.begin(), doubtful_.end(), [](const Leaves& a, const Leaves& b) {
      return a.bound > b.bound;
    });
    for (Leaves& leaves : doubtful_) {
      work_through(leaves, std::numeric_limits<std::int64_t>::max());
      close(leaves);
    }
  }

  // --- enumeration

  template <typename Visit>
  void enumerate(Point point, bool inner, Visit&& visit) const {
    const std::vector<Axis>& axes = axes_of(space_, point);
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
      const std::optional<bool> fits = record_.known(point);
      if (!fits) fresh.push_back(point);
      if (fits.value_or(false)) ++fitted;
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
        record_.take_bounded(kNoRoomByBound, fresh[i]);
        continue;
      }
      if (!results[i]) {
        record_.drop_unseen(1, bound_of(fresh[i], BoundDepth::whole));
        continue;
      }
      if (results[i]->fits) ++fitted;
      take(std::move(*results[i]));
    }
    report();
    return fitted;
  }

  bool surely_too_large(const Point& point) const {
    try {
      return sound([&] { return !bounds_.may_fit(point); }, false);
    } catch (const InputError&) {
      return false;  // evaluate() says why
    }
  }

  void take(Evaluated item) {
    // Of a point that is shown all numbers are wanted.
    if (!item.fits && record_.shows_next(item.why_not)) {
      item = evaluate(space_, item.point, options_.limits, &memo_);
    }
    record_.take(std::move(item));
  }

  // Asked by the workers, too.
  bool stopped() const {
    const bool found = options_.goal == SearchGoal::any_fit && record_.best().has_value();
    return found || interrupted() || out_of_time() || record_.stalled() ||
           record_.evaluated() >= options_.most_evaluated;
  }
  // No bound is asked for any more: where nothing fits none leaves out what it costs to ask.
  bool gives_up() const { return interrupted() || out_of_time() || (stopped() && !record_.best()); }
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
    options_.on_progress(record_.progress());
  }

  const SearchSpace& space_;
  const SearchOptions& options_;
  SearchBounds bounds_;
  WorkerPool pool_;
  std::chrono::steady_clock::time_point began_;
  simulator::SimulationMemo own_memo_;
  simulator::SimulationMemo& memo_;
  Bytes room_;
  SearchRecord record_;
  std::vector<Point> round_;
  std::vector<Leaves> doubtful_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Branch>> opened_;
  std::optional<Point> leanest_;  // of what bounds were asked about
  Bytes leanest_memory_;
  double climbed_to_ = 0.0;  // the best score from which all neighbours were tried
};

}  // namespace

SearchResult search(const SearchSpace& space, const SearchOptions& options) {
  return Search(space, options).run();
}

}  // namespace zeroplan::tuner
