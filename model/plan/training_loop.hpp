// What a training loop does beside its steps, and how often (docs/contract.md section 1:
// `save_steps`, `eval_steps`, `logging_steps`, `dataloader_num_workers`, `mtbf`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace zeroplan {

// The Trainer's strategies: never, after each epoch, after a number of optimizer steps, or after a
// share of all of them (save_steps below 1).
struct Every {
  enum class Unit { never, epoch, steps, share };
  Unit unit = Unit::never;
  double count = 0.0;  // of steps; of a share, 0 to 1
};

// "500", "0.1", "epoch", "no"; nothing for what is none of these.
std::optional<Every> parse_every(const std::string& text);
std::string to_string(const Every& every);

// Unspecified members: what the loop does is not known, and is not counted.
struct TrainingLoop {
  std::optional<Every> save;
  std::optional<Every> evaluate;
  std::optional<Every> log;
  std::optional<std::int64_t> dataloader_workers;
  std::optional<std::int64_t> mtbf;  // hours between failures of one node, in the mean
};

// How often that happens in a run. The Trainer saves and evaluates after the last step, too, where
// it does so by steps. Source: transformers 5.17 trainer_callback.py DefaultFlowCallback.
std::int64_t times(const Every& every, std::int64_t steps, double epochs, bool at_the_end);

}  // namespace zeroplan
