// What `zeroplan fit` answers: every strategy with its prediction, which is recommended, and what
// to change where none fits.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "model/plan/batch.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "simulator/simulation_memo.hpp"
#include "tuner/headroom.hpp"
#include "tuner/packages.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {

// Another micro-batch than the chosen one, which was simulated too.
struct OtherBatch {
  BatchSizes sizes;
  double tokens_per_second_per_gpu = 0.0;
  Bytes gpu_memory;
};

// One strategy, planned with its best batch and predicted.
struct StrategyResult {
  Strategy strategy;
  Plan plan;
  StepResult result;
  std::optional<OtherBatch> safer;   // where the plan runs at the GPU's limit and this is slower
  std::optional<OtherBatch> faster;  // where it does not, and this does
  // The analytic estimate alone saw it: it surely does not fit, or the same with the other
  // checkpointing is better. It is not recommended.
  bool simulated = false;
  simulator::KnownRanks known;  // of the plan, where it was
};

inline BatchSizes batch_of(const StrategyResult& row) {
  return {row.plan.workload.micro_batch_size, row.plan.workload.gradient_accumulation_steps};
}

// What a change costs that makes a run fit.
enum class RemedyPrice { nothing, speed, training, host_memory, machines };
inline constexpr EnumNames<RemedyPrice, 5> kRemedyPriceNames{
    {"nothing", "speed", "training", "host_memory", "machines"}};

// A change of the scenario that was planned and simulated again, and fits.
struct Remedy {
  Phrase change;  // "use 4 nodes instead of 2"
  RemedyPrice price = RemedyPrice::nothing;
  StrategyResult best;  // the strategy that fits then
};

// The best strategy with packages that the environment may lack.
struct WithPackages {
  Packages packages;
  StrategyResult best;
};

// What fits nodes whose host memory is the usual one; nothing where nothing does.
struct UsualHost {
  std::optional<StrategyResult> best;
  Packages needs;
  std::optional<Remedy> remedy;  // where nothing fits and a change that costs nothing makes it
};

struct FitAnswer {
  bool complete = true;                    // all strategies were looked at: not so by quick_fit
  std::vector<StrategyResult> strategies;  // in the order of strategies()
  std::optional<std::size_t> recommended;  // index; nothing where none fits
  std::vector<std::size_t> runners_up;     // the next two that fit and differ in their numbers
  std::optional<Headroom> headroom;        // of the recommended one
  std::vector<Remedy> remedies;            // cheapest first, where none fits
  std::vector<Phrase> tried;               // what else was, and does not make it fit
  // Where a node's host memory is unspecified: faster candidates that need more than a node of the
  // kind can have (indices).
  std::vector<std::size_t> behind_host_memory;
  // Where the recommended one has a host_condition: the answer for nodes with the usual amount.
  std::optional<UsualHost> usual_host;
  std::optional<StrategyResult> one_node;  // of a cluster of several, where one is enough
  // What all of the strategies take for granted, because nothing fits without it; what came nearest
  // then.
  Packages needs;
  std::optional<StrategyResult> nearest_without;
  // Where the recommended one fills its GPU or gives memory back in every step, and this spares it:
  // the same plan with expandable_segments.
  std::optional<StepResult> with_expandable_segments;
  // Where something fits without them: clearly faster.
  std::optional<WithPackages> faster_with;
  // Where one GPU was asked about and no engine: the Trainer without DeepSpeed, where it is clearly
  // faster, or has room on the GPU or the host where the recommended one has none.
  std::optional<StrategyResult> without_deepspeed;
};

}  // namespace zeroplan::tuner
