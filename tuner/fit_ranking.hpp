// Which strategy an expert would take of those that were planned, and what to say of the others.
//
// The fastest that fits, with room on the GPU where that costs little; of those that are about as
// fast the one that offloads least and needs the fewest knobs. Checked by
// tests/unit/tuner/fit_ranking_test.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tuner/fit_answer.hpp"

namespace zeroplan::tuner {

// What a prediction of time is off, twice over: a plan below this share of another's speed is
// clearly slower.
inline constexpr double kSafeShare = 0.9;
// Strategies whose speeds differ by less are equally fast; of their micro-batches the smaller one
// is taken, which leaves more room.
inline constexpr double kAsFast = 0.02;
// A plan with room on the GPU is preferred where it has at least this share of the speed of one at
// the GPU's limit: a run that ends in its first hours costs more than a quarter of its time, and
// flushes of the allocator take some of the difference.
inline constexpr double kRoomShare = 0.75;

// What strategies are compared by: tokens a second in a step of full sequences; where the dataset
// tells how long samples are, runs of it a second, since most micro-batches are shorter than the
// longest and each size of them has its own share of padding.
inline double comparable_speed(const StrategyResult& row) {
  const StepResult& result = row.result;
  const bool varies = result.job && result.job->padding_share;
  const double job = varies ? result.job->seconds().seconds() : 0.0;
  return job > 0.0 ? 1.0 / job : result.step.tokens_per_second_per_gpu;
}

// Is the GPU so full that the model's error (5 % of peak memory in the median) decides?
bool is_at_limit(const StepResult& result);

// Would an expert take `a` rather than `b`?
bool is_preferred(const StrategyResult& a, const StrategyResult& b);

// Nothing where none fits. Of rows that were simulated, unless none was.
std::optional<std::size_t> best_of(const std::vector<StrategyResult>& rows);

// The next best that fit and differ in their numbers, apart from `chosen`; at most two.
std::vector<std::size_t> runners_up(const std::vector<StrategyResult>& rows, std::size_t chosen);

// Faster than `chosen` (which may be none), and short of host memory alone, which is unspecified:
// the one with the least need and the fastest, if that is another.
std::vector<std::size_t> behind_host_memory(const std::vector<StrategyResult>& rows,
                                            std::optional<std::size_t> chosen);

// Of rows of which none fits: the likeliest to. Precondition: there is one.
const StrategyResult& nearest_of(const std::vector<StrategyResult>& rows);

// How much host memory to have for a strategy: a tenth more than its peak, and room for the system
// and the page cache, in steps of 16 GiB.
Bytes enough_host_memory(Bytes peak, double margin = 1.1);

}  // namespace zeroplan::tuner
