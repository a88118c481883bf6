// A traced model's graph: its blocks played on a Tape, as forward code that was written by hand is.
#pragma once

#include "model/graph/graph.hpp"
#include "model/graph/traced_graph.hpp"
#include "model/implementations/graph_options.hpp"
#include "model/transformer.hpp"

namespace zeroplan {

// Throws InputError for an option that a traced model has no description for, by its name.
ModelGraph build_traced(const Model& model, const TracedGraph& graph, const GraphOptions& options);

}  // namespace zeroplan
