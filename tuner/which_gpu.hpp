// Which GPU? Of several clusters the smallest, the cheapest and the fastest that train a model.
//
// The analytic estimate looks at every cluster and every strategy with its best batch. Then
// clusters are asked properly, as fit() asks, the best by the estimate first, until none of those
// that are left could win if it were kSlack times as fast as estimated. Clusters that were named
// are all asked. None is refused that fit() accepts. Checked by
// tests/unit/tuner/which_gpu_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "tuner/deadline.hpp"
#include "tuner/fit.hpp"
#include "tuner/training_cost.hpp"

namespace zeroplan::tuner {

// How many times as fast as by the analytic estimate a strategy may be when it is simulated.
inline constexpr double kSlack = 1.5;

struct AskedCluster {
  std::string text;  // as it was written
  Json said;         // that, or its inline form with what was said of its parts
};

struct WhichQuestion {
  Scenario scenario;  // its cluster is not looked at
  std::vector<AskedCluster> clusters;
  CostQuestion cost;
  bool ask_all = false;  // not only the best few by the analytic estimate
  ShareDone on_progress;
};

// One cluster on which something fits.
struct ClusterChoice {
  AskedCluster asked;
  Cluster cluster;
  StrategyResult best;
  Packages needs;                  // without which nothing fits it
  double tokens_per_second = 0.0;  // of all its GPUs
  TrainingCost cost;
};

// One on which nothing does.
struct ClusterRefusal {
  std::string text;
  Phrase why;  // "GPU memory: needs 131.0 GiB, has 23.5 GiB", of the nearest strategy
};

struct WhichAnswer {
  std::vector<ClusterChoice> choices;    // in the order of the question
  std::vector<ClusterRefusal> refusals;  // the same
  std::vector<std::string> not_asked;    // worse than the choices, even kSlack times as fast
  std::optional<std::size_t> smallest;   // in a month: fewest GPUs, least memory, cost
  std::optional<std::size_t> cheapest;   // nothing where no price is known
  std::optional<std::size_t> fastest;
};

// Throws InputError as fit() does, and for clusters that cannot be read.
WhichAnswer which_gpu(const WhichQuestion& question, const PredictOptions& options = {});

}  // namespace zeroplan::tuner
