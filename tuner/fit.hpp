// The answer of `zeroplan fit`: does it fit, how, and what to change when it does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plan/batch.hpp"
#include "model/predict/predict.hpp"
#include "tuner/headroom.hpp"
#include "tuner/packages.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan {

// A smaller micro-batch than the chosen one, with which the card does not run full.
struct SaferBatch {
  BatchSizes sizes;
  double tokens_per_second_per_gpu = 0.0;
  Bytes gpu_memory;
};

// One strategy, planned with its best batch and predicted.
struct StrategyResult {
  Strategy strategy;
  Plan plan;
  StepResult result;
  std::optional<SaferBatch> safer;  // where the plan runs at the card's limit and this is slower
  // The analytic estimate alone saw it: it surely does not fit, or the same with the other
  // checkpointing is better. It is not recommended.
  bool simulated = false;
};

// A change of the scenario that was planned again.
struct Remedy {
  std::string change;   // "use 4 nodes instead of 2"
  StrategyResult best;  // the strategy that fits then
};

// The best strategy with packages that the environment may lack.
struct WithPackages {
  Packages packages;
  StrategyResult best;
};

struct FitAnswer {
  bool complete = true;                    // all strategies were looked at: not so by quick_fit
  std::vector<StrategyResult> strategies;  // in the order of strategies()
  std::optional<std::size_t> recommended;  // index; nothing where none fits
  std::vector<std::size_t> runners_up;     // the next two that fit and differ in their numbers
  std::optional<Headroom> headroom;        // of the recommended one
  std::vector<Remedy> remedies;            // cheapest first, at most three, where none fits
  // Where nobody said how much host memory a node has: faster ones that need more than a node of
  // the kind can have, and the best one that does with what is usual (indices).
  std::vector<std::size_t> behind_host_memory;
  std::optional<std::size_t> with_usual_host_memory;
  std::optional<StrategyResult> one_node;  // of a cluster of several, where one is enough
  // What all of the strategies take for granted, because nothing fits without it; what came nearest
  // then.
  Packages needs;
  std::optional<StrategyResult> nearest_without;
  // Where something fits without them: clearly faster.
  std::optional<WithPackages> faster_with;
};

// Plans every strategy with the batch that was said, or the usual one. Host memory that nobody
// stated is a requirement (PredictOptions::host_is_open). Throws InputError as resolve() does.
FitAnswer fit(const Scenario& scenario, const PredictOptions& options = {});

// A first answer in a small part of the time: the strategies that offload least, each with its best
// batch, by the analytic estimate; the one that it likes best is simulated, the next where that
// does not fit, and recommended. More offload where none fits. Another may be better once all are
// simulated. Nothing but the strategies that were looked at and the recommendation is in it.
FitAnswer quick_fit(const Scenario& scenario, const PredictOptions& options = {});

}  // namespace zeroplan
