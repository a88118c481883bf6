// The feed-forward of a decoder layer by tiles of the sequence, as DeepSpeed's ALST patches it into
// Hugging Face's classes: what `tiled_mlp` stands for.
#pragma once

#include "model/graph/traced_graph.hpp"
#include "model/implementations/hf_common.hpp"

namespace zeroplan::hf {

// Into how many tiles a sequence of `tokens` (of one rank) is cut: ceil(tokens / hidden), at which
// a tile's tensors are about as large as the weights. Source: snowflakedb/ArcticTraining,
// arctic_training/model/tiled_compute.py; arXiv:2506.13996 section 3.1.1.
std::int64_t mlp_tiles(std::int64_t tokens, std::int64_t hidden);

// down_proj(act(gate_proj(x)) * up_proj(x)), x (batch, tokens, hidden), within the module's scope.
//
// Forward runs tile by tile without autograd and keeps x alone; the tiles' outputs live until
// torch.cat has copied them. Backward runs each tile's forward again, and then its backward; the
// weights' gradients are added up over the tiles, so that from the second tile on one more gradient
// of a weight lives beside them. Tensors of one tile are written; the work is that of all.
// Source: DeepSpeed deepspeed/runtime/sequence_parallel/ulysses_sp.py:TiledMLP.
// Left out: that stage 3 may fetch a weight anew for every tile. Checked by
// tests/unit/model/implementations/graph_tiled_test.cpp.
Tensor tiled_gated_mlp(Tape& t, const Tensor& x);

// Whether layers of the model are of that kind, with weights that are not quantised.
bool has_gated_mlp(const Model& model);

// Whether the module that a traced block enters at that event is such a feed-forward.
bool is_gated_mlp(const TracedBlock& block, std::size_t entered);

}  // namespace zeroplan::hf
