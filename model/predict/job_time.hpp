// Steps and hours of a whole training run from `dataset`: how many optimizer steps the frontend
// makes of the samples, how long one takes when most samples are shorter than the longest, and what
// the loop does beside them.
//
// Memory follows the longest sample (sequence_length) and the lengths that came before it
// (varied_lengths.hpp); speed follows the tokens that a micro-batch is padded to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

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
// Checked by tests/unit/model/predict/job_time_test.cpp.
std::int64_t job_steps(const Plan& plan);

// Where micro-batches are padded to their longest sample: the plan of a step as long as the mean
// one, whose sequences have the tokens that a micro-batch is padded to on average and no dataset.
// Absent where every sequence has sequence_length tokens, or lengths are not told.
std::optional<Plan> mean_step_plan(const Plan& plan);
// Tokens of samples in a sequence, on average: without padding where mean_step_plan() is there,
// else sequence_length.
double tokens_of_a_sequence(const Plan& plan);

struct JobQuestion {
  // A step in which every sequence is sequence_length long. Shorter ones are estimated at their own
  // length (step_time of a plan whose sequence_length is padded_length) and scaled by
  // `of_analytic`: full_step as a share of its analytic estimate.
  Seconds full_step;
  double of_analytic = 1.0;
  // What the checkpoints' storage takes a second, per node; unspecified: the node's NVMe.
  std::optional<BytesPerSecond> checkpoint_bandwidth;
};

// [J3] What the loop does beside its steps (model/plan/training_loop.hpp).
//   dataloader  a micro-batch takes a + b m l seconds of the process that makes it (m sequences of
//               l tokens, dataloader_batch_seconds and dataloader_token_seconds). Without workers
//               the GPU waits for it: the Trainer reads each loss before it goes on
//               (logging_nan_inf_filter). With w workers: what they are slower than the steps.
//   logging     log_line_seconds a line
//   saving      predict_checkpoint().saving a checkpoint: the GPU waits
//   evaluation  forward passes of the evaluation's samples
// [J4] Failures, where `mtbf` says how many hours lie between those of one node: with M of all
// nodes together, a checkpoint d after each interval t of the work W, and d to read it again
//   M e^(d / M) (e^((t + d) / M) - 1) W / t
// and the interval that loses least is sqrt(2 d M) (1 + sqrt(d / 2 M) / 3 + d / 18 M) - d, or M
// where d >= 2 M. Source: Daly, A higher order estimate of the optimum checkpoint interval for
// restart dumps (Future Generation Computer Systems 22, 2006). New nodes and the start of processes
// are not counted.
// Of each the times in the run: times(). What is not known is left out, and said. Sources:
// transformers 5.17 trainer.py _inner_training_loop, trainer_callback.py DefaultFlowCallback.
// Without a dataset or samples: nothing. `sentences` gets what was assumed.
std::optional<JobTime> job_time(const Plan& plan,
                                const JobQuestion& question,
                                std::vector<Phrase>& sentences);

}  // namespace zeroplan
