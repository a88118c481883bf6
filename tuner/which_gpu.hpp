// Which GPU? Of several clusters the smallest, the cheapest and the fastest that train a model;
// and, on one cluster, the longest sequences or the largest model.
//
// The analytic estimate looks at every cluster and every strategy; of each objective its best few
// are asked properly (fit()), and the answer comes from these alone. Clusters that were named are
// all asked. Checked by tests/unit/tuner/which_gpu_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/phrase.hpp"
#include "tuner/fit.hpp"
#include "tuner/training_cost.hpp"

namespace zeroplan {

struct AskedCluster {
  std::string text;  // as it was written
  Json said;         // that, or its inline form with what was said of its parts
};

struct WhichQuestion {
  Scenario scenario;  // its cluster is not looked at
  std::vector<AskedCluster> clusters;
  CostQuestion cost;
  bool ask_all = false;  // not only the best few by the analytic estimate
};

// One cluster on which something fits.
struct ClusterChoice {
  AskedCluster asked;
  Cluster cluster;
  StrategyResult best;
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
  std::vector<std::string> not_asked;    // worse than the choices by the analytic estimate
  std::optional<std::size_t> smallest;   // in a month: fewest GPUs, least memory, cost
  std::optional<std::size_t> cheapest;   // nothing where no price is known
  std::optional<std::size_t> fastest;
};

// Throws InputError as fit() does, and for clusters that cannot be read.
WhichAnswer which_gpu(const WhichQuestion& question, const PredictOptions& options = {});

// The longest sequences, in steps of 1024 tokens, and the answer at that length; nothing where not
// even the shortest fit. Checkpointing is full unless something was said.
struct LongestSequence {
  std::int64_t tokens = 0;
  FitAnswer answer;
};
std::optional<LongestSequence> longest_sequence(const Scenario& scenario,
                                                const PredictOptions& options = {});

// The largest model of a LLaMA's shape (as "13B" names one), in steps of 4 %, and its answer.
struct LargestModel {
  std::string size;  // "13.2B"
  FitAnswer answer;
};
std::optional<LargestModel> largest_model(const Scenario& scenario,
                                          const PredictOptions& options = {});

}  // namespace zeroplan
