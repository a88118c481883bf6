// A traced model's graph: its blocks played on a Tape, as forward code that was written by hand is.
#pragma once

#include "model/graph/traced_graph.hpp"
#include "model/implementations/hf_common.hpp"

namespace zeroplan {

// Throws InputError for an option that a traced model has no description for, by its name.
void build_traced(GraphAssembler& assembler, const hf::Context& context, const TracedGraph& graph);

}  // namespace zeroplan
