// Branch and bound over a search space: bounds leave points out, the simulator decides about the
// rest.
//
// A tree of three levels: strategy, checkpointing and batch; then the knobs of the optimizer's step
// and the host; then those of gathers and reductions. A branch is left out with all its points
// where a bound proves that none of them fits, or that none is better than the best found so far.
// Branches are opened best bound first; their points are simulated the simplest first, in rounds of
// a fixed size, so that the answer does not depend on the number of threads.
//
// The answer: of the points whose score is within `gap` of the best one simulated, which is as good
// as a prediction tells them apart, the simplest: the least offloaded, then the one with the fewest
// knobs that differ from the default; one that does not fill its card before all that do.
// `optimal`: no point that was left out can be better than the best one by more than `gap`; with a
// gap of 0 the answer is that of exhaustive enumeration, and so it is where few points come into
// question: the gap leaves nothing out before 48 were simulated. Near a card's limit the bounds
// cannot know which points give memory back in every step, and thousands would have to be played
// one by one: after `patience` simulations without a better point, or `most_evaluated` in all, the
// search ends and says how much better, by a bound, the rest can be. Both count simulations, so the
// answer is the same on every machine; `seconds` is for users who want it sooner. `any_fit` opens
// what needs least memory first. Checked by tests/property/search_property.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simulator/simulation_memo.hpp"
#include "tuner/search_bounds.hpp"
#include "tuner/search_space.hpp"

namespace zeroplan {

enum class SearchGoal {
  throughput,  // most tokens a second and GPU
  memory,      // least memory of the GPU
  any_fit,     // the first that fits
};

struct SearchLimits {
  PredictOptions predict;
  Bytes host_memory = Bytes::infinite();  // of a node, less than what there is
  double tokens_per_second = 0.0;         // per GPU, at least; as Evaluated has it
};

// A point that was simulated.
struct Evaluated {
  Point point;
  bool fits = false;  // all limits hold
  std::string why_not;
  // Per GPU. Where the dataset tells lengths and micro-batches are padded to their longest sample:
  // the samples' own tokens, in a step as long as the mean one (mean_step_plan()).
  double tokens_per_second = 0.0;
  Seconds step;  // the same
  Bytes gpu_memory;
  Bytes host_memory;
  bool at_limit = false;  // of the card: fit_ranking.hpp
};

struct SearchProgress {
  std::int64_t points = 0;        // of the space
  std::int64_t evaluated = 0;     // simulated
  std::int64_t pruned = 0;        // left out
  std::optional<Evaluated> best;  // so far
};

struct SearchOptions {
  SearchGoal goal = SearchGoal::throughput;
  SearchLimits limits;
  double gap = 0.05;
  std::int64_t patience = std::numeric_limits<std::int64_t>::max();  // simulations
  bool use_bounds = true;  // false: every point is simulated
  int jobs = 0;            // threads; 0: as many as there are cores
  double seconds = std::numeric_limits<double>::infinity();
  std::int64_t most_evaluated = std::numeric_limits<std::int64_t>::max();
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(const SearchProgress&)> on_progress;  // called between rounds
  SimulationMemo* memo = nullptr;  // of searches that share it; null: the search has its own
};

struct TallyRow {
  std::int64_t count = 0;
  Json sample;
};

struct SearchResult {
  std::optional<Evaluated> best;
  std::vector<Evaluated> pareto;   // of the simulated ones, the fastest first
  std::vector<Evaluated> fitting;  // the simulated ones that fit, as they were found
  std::int64_t points = 0;
  std::int64_t evaluated = 0;
  std::int64_t pruned = 0;
  std::int64_t unseen = 0;  // neither simulated nor left out by a bound
  bool optimal = false;
  bool interrupted = false;
  bool out_of_time = false;
  bool stalled = false;         // a count of simulations ended it
  double unseen_at_most = 0.0;  // better than the best by that share, what was not looked at
  double seconds = 0.0;
  std::map<std::string, TallyRow> tally;  // why points lost
};

SearchResult search(const SearchSpace& space, const SearchOptions& options);

// What is asked about a point: all of its numbers, or those alone of a point that fits. Then one
// near the card's limit is dropped where it runs out of memory.
enum class Numbers { all, of_what_fits };

// One point, simulated. Refusals of a plan are a reason not to fit.
Evaluated evaluate(const SearchSpace& space,
                   const Point& point,
                   const SearchLimits& limits,
                   SimulationMemo* memo = nullptr,
                   Numbers numbers = Numbers::all);

}  // namespace zeroplan
