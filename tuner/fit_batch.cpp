#include "tuner/fit_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "model/plan/trainer.hpp"
#include "simulator/planned_ranks.hpp"
#include "simulator/simulate.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan::tuner {
namespace {

StrategyResult row_of(const Question& question,
                      const Strategy& strategy,
                      const BatchSizes& sizes,
                      const PredictOptions& options) {
  StrategyResult row{strategy, plan_strategy(question, strategy, sizes), {}, {}, {}, false, {}};
  row.result = likeliest(row.plan, options);
  return row;
}

// One strategy with micro-batches that ascend, by the analytic estimate, up to the first that does
// not fit; at least one.
class Ladder {
 public:
  Ladder(const Question& question, const Strategy& strategy, const PredictOptions& options)
      : question_(question), options_(options) {
    for (const BatchSizes& sizes : question.batches.sizes) {
      StrategyResult row = row_of(question, strategy, sizes, options);
      const bool fits = row.result.fits;
      if (rungs_.empty() || fits) rungs_.push_back(std::move(row));
      if (!fits) break;
    }
    at_ = best_rung();
  }

  const StrategyResult& best() const { return rungs_[at_]; }
  const Strategy& strategy() const { return rungs_.front().strategy; }
  StrategyResult take() { return std::move(rungs_[at_]); }

  // Simulates the best, and smaller ones where that does not fit or fills the GPU.
  void decide() {
    if (is_hopeless(best().result)) return;
    play(at_);
    while (!best().result.fits && at_ > 0) play(--at_);
    if (!best().result.fits || !is_at_limit(best().result)) return;
    for (std::size_t i = at_; i-- > 0;) {
      play(i);
      const StrategyResult& smaller = rungs_[i];
      if (!smaller.result.fits || is_at_limit(smaller.result)) continue;
      if (comparable_speed(smaller) >= kRoomShare * comparable_speed(best())) {
        if (comparable_speed(smaller) < comparable_speed(best()))
          rungs_[i].faster = other_batch(at_);
        at_ = i;
      } else {
        rungs_[at_].safer = other_batch(i);
      }
      return;
    }
  }

  // Is this what an expert wants: it was simulated, fits and has room?
  bool settled() const {
    return best().simulated && best().result.fits && !is_at_limit(best().result);
  }

 private:
  OtherBatch other_batch(std::size_t i) const {
    const StrategyResult& row = rungs_[i];
    return {question_.batches.sizes[i],
            row.result.step.tokens_per_second_per_gpu,
            row.result.gpu.peak_total};
  }

  // One rank is simulated for all that differ; where it does not surely fit, all are. A micro-batch
  // that runs out of memory is not simulated further where a smaller one can take its place.
  void play(std::size_t i) {
    constexpr double kForSure = 0.999;
    StrategyResult& row = rungs_[i];
    row.simulated = true;
    simulator::SimulateOptions options{.predict = options_,
                                       .other_networks = false,
                                       .verdict_alone = true,
                                       .stops_at_the_limit = i > 0,
                                       .lockstep = false,
                                       .memo = question_.memo.get(),
                                       .known = &row.known};
    options.predict.likeliest_alone = true;
    row.result = simulator::simulate(row.plan, options);
    const bool for_sure = !row.result.fits || row.result.fit_probability >= kForSure;
    if (for_sure || !simulator::ranks_differ(row.plan)) return;
    options.lockstep = true;
    row.result = simulator::simulate(row.plan, options);
  }

  // Of those that leave room, if there are any, the smallest that is about as fast as the fastest.
  std::size_t best_rung() const {
    const auto usable = [&](const StrategyResult& row, bool with_room) {
      return row.result.fits && !(with_room && is_at_limit(row.result));
    };
    for (const bool with_room : {true, false}) {
      double fastest = 0.0;
      for (const StrategyResult& row : rungs_) {
        if (usable(row, with_room)) fastest = std::max(fastest, comparable_speed(row));
      }
      for (std::size_t i = 0; i < rungs_.size(); ++i) {
        const bool fast = comparable_speed(rungs_[i]) >= fastest * (1.0 - kAsFast);
        if (usable(rungs_[i], with_room) && fast) return i;
      }
    }
    return 0;
  }

  const Question& question_;
  const PredictOptions& options_;
  std::vector<StrategyResult> rungs_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<StrategyResult> settle(const Question& question,
                                   std::span<const Strategy> alike,
                                   const PredictOptions& options,
                                   Depth depth) {
  std::vector<Ladder> ladders;
  for (const Strategy& strategy : alike) {
    question.missing->attempt(describe(strategy),
                              [&] { ladders.emplace_back(question, strategy, options); });
  }
  // The simulator asks the likeliest first, and the next as long as an estimate is better than what
  // it found: an estimate that was not tried stands above none that was.
  std::vector<Ladder*> open, lost;
  for (Ladder& ladder : ladders) open.push_back(&ladder);
  const auto likelier = [](const Ladder* a, const Ladder* b) {
    return is_preferred(a->best(), b->best());
  };
  const Ladder* settled = nullptr;
  while (depth != Depth::closed_form && !open.empty()) {
    const auto next = std::min_element(open.begin(), open.end(), likelier);
    Ladder* ladder = *next;
    if (settled != nullptr && !likelier(ladder, settled)) break;
    open.erase(next);
    if (!question.missing->attempt(describe(ladder->strategy()), [&] { ladder->decide(); })) {
      lost.push_back(ladder);
    } else if (ladder->settled() && (settled == nullptr || likelier(ladder, settled))) {
      settled = ladder;
    }
  }
  std::vector<StrategyResult> rows;
  for (Ladder& ladder : ladders) {
    if (std::find(lost.begin(), lost.end(), &ladder) == lost.end()) rows.push_back(ladder.take());
  }
  return rows;
}

bool is_hopeless(const StepResult& estimate) {
  constexpr double kHopeless = 1.25;  // its peak over the GPU's memory
  const GpuMemory& gpu = estimate.gpu;
  return !estimate.fits && static_cast<double>(gpu.peak_total.count()) >
                               kHopeless * static_cast<double>(gpu.capacity.count());
}

bool holds(const Question& question,
           const Strategy& strategy,
           const BatchSizes& sizes,
           const PredictOptions& options,
           bool simulated) {
  const auto planned = [&](std::int64_t micro_steps) {
    return plan_strategy(question, strategy, {sizes.micro_batch, micro_steps});
  };
  // What a step holds does not grow from the second micro-batch on, but for what is generated.
  Plan plan = planned(std::min<std::int64_t>(2, sizes.accumulation));
  const bool generates =
      plan.trainer != nullptr && plan.trainer->generates() && !plan.trainer->distils();
  if (generates) plan = planned(sizes.accumulation);
  return simulated ? runs(plan, options, *question.memo) : likeliest(plan, options).fits;
}

StrategyResult most_frugal(const Question& question,
                           const Strategy& strategy,
                           const PredictOptions& options) {
  return row_of(question, strategy, question.batches.sizes.front(), options);
}

}  // namespace zeroplan::tuner
