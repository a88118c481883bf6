// Loops of a recorded class's blocks, over experts one after the other, and the modules that they
// run: a recording has them once (docs/trace.md).
#pragma once

#include "base/json.hpp"

namespace zeroplan {

// Each pass of them in its place. `graph`: with numbers for formulas.
void unfold_loops(Json& graph);

}  // namespace zeroplan
