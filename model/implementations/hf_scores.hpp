// [B3] Losses of TRL's trainers and LLaMA-Factory's, which read log-probabilities of tokens
// (GraphOptions::scores).
#pragma once

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// From all logits (b, s, V): TokenScores whole, rows, kernel and wide.
Tensor scored_logits_loss(Tape& t, const Context& c, Tensor logits);
// A number a token by a model of values or rewards, from hidden states (b, s, h): its head is
// `score`. Alone it is the output; of two models in one engine the policy's loss reads it.
Tensor score_tokens(Tape& t, const Context& c, const Tensor& hidden);
// From hidden states (b, s, h) and the head's weight (V, h): TokenScores chunks.
Tensor scored_tiles_loss(Tape& t, const Context& c, const Tensor& hidden, const Tensor& weight);

}  // namespace zeroplan::hf
