// Completions that a trainer makes while it trains: what generate() of the training process, or an
// engine beside it, takes on a GPU. docs/model.md, "Several models".
#pragma once

#include <vector>

#include "base/units.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

// Whether a rank holds a part of each weight: ZeRO stage 3, FSDP.
bool cuts_weights(const Plan& plan);
// As which weights lie on a GPU and are gathered.
DType weight_dtype(const Plan& plan);
// Whether vLLM makes the completions, on the training GPUs or elsewhere.
bool has_server(const Plan& plan);

// What generate() of the training process holds beside the trained model.
struct GenerationMemory {
  Bytes gathered;  // all weights at once (ds3_gather_for_generation)
  Bytes cache;     // keys and values at the last token
  Bytes grown;     // one layer's, which are copied to grow
  Bytes logits;    // of the last token, their fp32 copy and its softmax
  Bytes kept;      // of all tokens, by ppo
  Bytes forward;   // of all tokens, which are computed again for each where there is no cache
  Bytes sum() const { return gathered + cache + grown + logits + kept + forward; }
};
// Whole weights, one by one, that generate() finds gathered; none where every rank has them.
// Source: DeepSpeed 0.19.6 runtime/zero/partition_parameters.py _allgather_params_coalesced.
std::vector<Bytes> weights_for_generation(const Plan& plan);
// Precondition of both: the plan's trainer generates.
GenerationMemory generation_memory(const Plan& plan);

// Whether completions come from generate() of the trained model itself.
bool generates_itself(const Plan& plan);
// Of a vLLM engine on the training GPUs; zero where there is none.
Bytes server_share(const Plan& plan);

}  // namespace zeroplan
