// Lines about a prediction that fit and tune print alike.
#pragma once

#include <string>

#include "base/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "tuner/fit_answer.hpp"
#include "tuner/headroom.hpp"

namespace zeroplan::cli {

// "micro-batch 4 x 4": with the steps of accumulation, where there are several.
Phrase batch_text(const BatchSizes& sizes);

// "ZeRO-1, micro-batch 4 x 4".
Phrase full_name(const tuner::StrategyResult& row);

// How a plan that fits compares with another: "3 % slower, 2.37 GiB more GPU memory".
Phrase comparison_text(const tuner::StrategyResult& other, const tuner::StrategyResult& best);

// What a node needs, compared with the host memory that the question states; where it states none,
// beside what such nodes usually have.
Phrase host_memory_text(const Plan& plan, const StepResult& result);

// "34.1 GiB of 251.5 GiB", or what is usual in place of what nobody said.
Phrase host_amount_text(const Plan& plan, const StepResult& result);

// "0.949": where the plan does not fit, rounded down, so that it never reads as what was asked for.
std::string probability_text(const StepResult& result);

// "needs 42.4 GiB and a margin of 1.9 GiB (95 %), has 44.3 GiB".
Phrase needs_text(const Limit& limit);

// ", with other releases (transformers 4.44.0 does not know gpt_oss: 4.55.0 is the first that
// does)": where those of the plan do not run the model. Else nothing.
Phrase other_releases_text(const Plan& plan);

// "does not fit: GPU memory needs 78.4 GiB and a margin of 3.1 GiB (95 %), has 79.2 GiB"; of a pool
// of buffers, what is wrong. Precondition: the plan does not fit.
Phrase short_text(const StepResult& result);

// "ZeRO-2 does not: GPU memory needs 78.4 GiB and a margin of 3.1 GiB (95 %), has 79.2 GiB".
Phrase lack_text(const tuner::StrategyResult& row);

// Where the trainer generates, whose seconds no step has: said before the step's time. Else
// nothing.
Phrase generation_text(const Plan& plan);

// For a plan that fills its GPU, or whose allocator gives memory back in every step: what that
// costs. Else nothing.
Phrase at_limit_text(const StepResult& result);

// The line "headroom" of a configuration; a model that was traced with one micro-batch has that.
Phrase headroom_text(const tuner::Headroom& headroom, const Plan& plan);

}  // namespace zeroplan::cli
