// One recorded operation on a Tape. Operations of model/graph/aten.hpp keep their own formulas, so
// that they take what they take in code that was written by hand; every other one allocates its
// results, keeps what autograd kept when it was traced, and makes a gradient of each input's size.
#pragma once

#include <string_view>

#include "model/graph/traced_graph.hpp"
#include "model/implementations/traced_values.hpp"

namespace zeroplan {

// Plays an event of kind operation.
void play_operation(TracedValues& values, const TracedEvent& event);

// Whether the operation has a formula of its own.
bool has_formula(std::string_view operation);

}  // namespace zeroplan
