// The batch and the checkpointing of a strategy: of the ways to make the question's batch, the
// micro-batch with which it is fastest and has room. The analytic estimate looks at all of them,
// the simulator decides about the one it finds, and about the next one where that does not fit or
// fills the GPU. Checked by tests/unit/tuner/fit_test.cpp and tests/property/fit_property.cpp.
#pragma once

#include <span>
#include <vector>

#include "tuner/fit_answer.hpp"
#include "tuner/fit_question.hpp"

namespace zeroplan::tuner {

enum class Depth { closed_form, simulated };

// Strategies that differ in checkpointing alone, each planned with its best batch. Simulated is the
// better one; another where that does not fit or fills the GPU; none that surely does not fit.
// It is simulated as searches do: one rank stands in for those that differ, and how probable it is
// that a plan near the GPU's limit fits is coarse. A strategy that a defect ends is missing.
std::vector<StrategyResult> settle(const Question& question,
                                   std::span<const Strategy> alike,
                                   const PredictOptions& options,
                                   Depth depth = Depth::simulated);

// Does so surely not fit, by the analytic estimate, that no simulation is asked.
bool is_hopeless(const StepResult& estimate);

// Does a strategy with that batch fit: by the analytic estimate, or simulated?
bool holds(const Question& question,
           const Strategy& strategy,
           const BatchSizes& sizes,
           const PredictOptions& options,
           bool simulated);

// With the smallest micro-batch and by the analytic estimate: does it fit at all?
StrategyResult most_frugal(const Question& question,
                           const Strategy& strategy,
                           const PredictOptions& options);

}  // namespace zeroplan::tuner
