// Slots of a traced document, through which blocks pass tensors to others than the next one.
#pragma once

#include "model/graph/traced_graph.hpp"

namespace zeroplan {

// Layers of one kind pass their tensors through one slot, which is given again by each of them:
// every giving gets a slot of its own, and the calls of a block with other slots a block of theirs.
// Slots that nobody gave stay as they are.
void separate_slots(TracedGraph& graph);

}  // namespace zeroplan
