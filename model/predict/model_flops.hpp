// Floating-point operations that a token's training counts as.
#pragma once

#include <cstdint>

#include "base/units.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// [T5] c = 6 N_t + 4 N_f + 12 L h s: floating-point operations that one token's training counts as
// (docs/contract.md section 4). N_t trained, N_f frozen parameters (of routed experts those that a
// token uses; tables of embeddings only where they are the head's weight, too), L layers, h hidden
// size, s sequence length; no causal halving, no recomputation. Source: Chowdhery et al. 2022,
// arXiv:2204.02311, appendix B. Checked by tests/published/mfu.json.
Flops model_flops_per_token(const Model& model, std::int64_t sequence_length);

}  // namespace zeroplan
