// Steps and hours of a whole training run from `dataset`: how many optimizer steps the frontend
// makes of the samples, and how long one takes when most samples are shorter than the longest.
//
// Memory follows the longest sample (sequence_length) and the lengths that came before it
// (varied_lengths.hpp); speed follows the tokens that a micro-batch is padded to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plan/plan.hpp"

namespace zeroplan {

struct JobTime {
  std::int64_t steps = 0;
  Seconds seconds;
  double padded_length = 0.0;  // tokens a sequence of a micro-batch has, on average
  // Of the tokens that are computed, those that only fill a sequence up; none: lengths not told.
  std::optional<double> padding_share;
  std::vector<std::string> assumptions;
};

// [J1] Optimizer steps. D samples, E epochs, N data-parallel ranks, b micro-batch, G accumulation.
//   hf-trainer  batches of a rank and epoch B = ceil(ceil(D / N) / b)  (its sampler and loader
//   round
//               up, dataloader_drop_last = false); steps of an epoch max(1, B / G), rounded down up
//               to transformers 4.47 and up since (the last, shorter accumulation counts);
//               steps = ceil(E x steps of an epoch)
//   native      B = ceil(ceil(D / N) / b) of DistributedSampler and DataLoader; accumulation goes
//   on
//               over epochs: floor(E B / G), at least 1
// Packed: D = ceil(samples x mean tokens / sequence_length) sequences. Source: transformers
// trainer.py _inner_training_loop (4.46 and 4.48: len_dataloader // G, then ceil), torch
// utils/data/distributed.py, deepspeed/runtime/engine.py is_gradient_accumulation_boundary.
// Checked by tests/unit/job_time_test.cpp.
std::int64_t job_steps(const Plan& plan);

// Without a dataset or samples: nothing. `full_step`: a step in which every sequence is
// sequence_length long. Shorter ones are predicted at their own length (step_time of a plan whose
// sequence_length is padded_length).
std::optional<JobTime> job_time(const Plan& plan, Seconds full_step);

}  // namespace zeroplan
