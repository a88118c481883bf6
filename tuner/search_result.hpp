// What a search over configurations is asked for, and what it answers (search.hpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/predict/predict_options.hpp"
#include "simulator/simulation_memo.hpp"
#include "tuner/search_space.hpp"

namespace zeroplan::tuner {

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
  Phrase why_not;
  // Per GPU. Where the dataset tells lengths and micro-batches are padded to their longest sample:
  // the samples' own tokens, in a step as long as the mean one (mean_step_plan()).
  double tokens_per_second = 0.0;
  Seconds step;  // the same
  Bytes gpu_memory;
  Bytes host_memory;
  bool at_limit = false;  // of the GPU: fit_ranking.hpp
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
  // A point with room on the GPU is the answer in place of one at its limit where it has this share
  // of the best score (fit_ranking.hpp); above 1: the gap alone decides.
  double room_share = 2.0;
  std::int64_t patience = std::numeric_limits<std::int64_t>::max();  // simulations
  bool use_bounds = true;  // false: every point is simulated
  int jobs = 0;            // threads; 0: as many as there are cores
  double seconds = std::numeric_limits<double>::infinity();
  std::int64_t most_evaluated = std::numeric_limits<std::int64_t>::max();
  const std::atomic<bool>* interrupted = nullptr;
  std::function<void(const SearchProgress&)> on_progress;  // called between rounds
  simulator::SimulationMemo* memo =
      nullptr;  // of searches that share it; null: the search has its own
};

struct TallyRow {
  std::int64_t count = 0;
  Json sample;
};

struct SearchResult {
  std::optional<Evaluated> best;   // the simplest within the gap of `top`
  bool keeps_room = false;         // it is: of the best that is not at the GPU's limit
  std::optional<Evaluated> top;    // of the simulated ones that fit the best by the goal alone
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
  std::map<Phrase, TallyRow, std::less<>> tally;  // why points lost
};

}  // namespace zeroplan::tuner
