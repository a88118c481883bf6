// From a model to its graph: who wrote the model code, with which libraries, under which switches.
//
// Flow: Model (families/*.cpp) + GraphOptions -> build_graph -> ModelGraph. The forward pass of
// each family is written out in implementations/*.cpp, line by line as the library does it.
#pragma once

#include "model/graph/graph.hpp"
#include "model/implementations/graph_options.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// Whether `tiled_mlp` is described for this model: layers with gate_proj, up_proj and down_proj
// that no adapter wraps, an activation of one kernel.
bool has_tiled_mlp(const Model& model);

// Whether ranks can share a sequence as DeepSpeed-Ulysses has it: nothing but attention reads other
// tokens, and that is handed queries, keys and values of whole heads and no mask.
bool has_ulysses(const Model& model, Attention attention);

// Whose kernels the model's layers run where they are installed; torch: no package has any.
LinearAttention kernels_of(const Model& model);

// The graph of one micro-batch. The model must be planned. Throws InputError where the family or
// the implementation is not modelled.
ModelGraph build_graph(const Model& model, const GraphOptions& options);

}  // namespace zeroplan
