// Collectives of an engine as those whose time is known.
#pragma once

#include <optional>

#include "model/cost/collective.hpp"
#include "model/engine/engine_action.hpp"

namespace zeroplan {

// What a collective of the engine costs as; none: a barrier moves nothing. A ring to one rank moves
// what a broadcast from it does. Source: nccl-tests doc/PERFORMANCE.md, bus bandwidth of Reduce.
std::optional<Collective> collective_of(CollectiveKind kind);

}  // namespace zeroplan
