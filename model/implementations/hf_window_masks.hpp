// Masks of decoders whose layers take turns between a sliding window (or a chunk) and the whole
// sequence, as
// models make them since transformers 4.53 (masking_utils.py) and as layers made them before.
//
// A causal mask alone is not made for sdpa, which has an argument for it. A window is another
// matter: from as many tokens on as it has, sdpa's layers get a mask of booleans, which the kernel
// turns into a 16-bit one in every layer and keeps for backward. Batches have an attention_mask of
// ones, as the Trainer's collators give it, so masks have a row of their own for each sequence.
// Checked by rehearsals: tests/reference/rehearsal/matrix/families_dense.jsonl.
#pragma once

#include <vector>

#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// Kinds of layers, in the order in which they first come.
struct LayerKinds {
  std::vector<LayerAttention> of;
  std::vector<std::size_t> layers;  // of each layer: index into `of`
};
LayerKinds layer_kinds(const TransformerShape& shape);

// What the model makes before its layers run.
void share_window_masks(Tape& t, const Context& c);

// What a layer gives to its attention; undefined: no mask. Called in the layer's own frame.
Tensor layer_mask(Tape& t, const Context& c, const LayerAttention& layer);

}  // namespace zeroplan::hf
