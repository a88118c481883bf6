// [B6] What PPOTrainer's rollout and its training loop keep on a GPU beside the models and their
// passes: logits of everything that was generated, and the policy's outputs of the micro-batch
// before. docs/model.md, "Several models". Precondition of all: the plan's trainer trains values.
//
// Sources: trl/trainer/ppo_trainer.py of 0.17.0, trl/experimental/ppo/ppo_trainer.py of 1.10.0
// (train, batch_generation, generate).
#pragma once

#include <cstdint>
#include <vector>

#include "model/plan/plan.hpp"

namespace zeroplan {

// `logitss`: fp32 scores of every token that was generated, for every word. Nobody drops them: they
// are there while the policy trains, and while the next rollout makes its own.
struct RolloutLogits {
  std::int64_t rows = 0;   // of a rollout
  std::int64_t chunk = 0;  // of them generated at once
  std::int64_t tokens = 0;
  Bytes token;  // one token of a chunk
  Bytes row;    // one row

  Bytes all() const { return row * rows; }
  Bytes of_chunk() const { return row * chunk; }
};
RolloutLogits rollout_logits(const Plan& plan);

// Keys and values of a chunk at the last token, a tensor for each layer's keys and one for its
// values.
struct RolloutCache {
  std::int64_t tensors = 0;
  Bytes tensor;
};
RolloutCache rollout_cache(const Plan& plan);

// The most of them that a generation holds beside those of the rollout before: the last chunk as
// single tokens and stacked, or all chunks and their padded copy.
struct GenerationPeak {
  Bytes stacked;  // beside keys and values
  Bytes padded;   // without
};
GenerationPeak generation_peak(const Plan& plan);

// The policy's output object and softmax(logits), which the loop's variables hold until the next
// micro-batch of the same mini-batch replaces them.
struct LoopVariables {
  std::vector<Bytes> outputs;  // logits, hidden states of every layer
  Bytes probabilities;
  Bytes sum() const;
};
LoopVariables loop_variables(const Plan& plan);
// Whether a micro-batch of a step finds those of the one before. The first ones of later
// mini-batches, which do not, are taken for others: what is highest stays.
bool finds_variables(const Plan& plan, int micro_step);
bool any_finds_variables(const Plan& plan);

}  // namespace zeroplan
