// The graph of a recorded class (recorded_class.hpp) for one config: its layers unfolded by kind,
// its sizes as numbers.
#pragma once

#include "base/json.hpp"
#include "model/families/recorded_sizes.hpp"

namespace zeroplan {

// A zeroplan.graph/1. `document`: of the family, one that the config matches. Throws NotRecorded
// where a layer is of a kind that was not recorded, or a size no number.
Json unfolded_graph(const Json& family, const Json& document, const RecordedValues& values);

}  // namespace zeroplan
