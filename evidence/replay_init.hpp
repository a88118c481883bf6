// The part of replay_reduce about initialisation.
#pragma once

#include <vector>

#include "base/json.hpp"
#include "evidence/recorded_engine.hpp"
#include "evidence/replay_mismatch.hpp"

namespace zeroplan::evidence {

// Compares wrapper, partition plan and collectives of a recording's `init`.
void replay_init(const Json& recording,
                 const RecordedEngine& engine,
                 std::vector<ReplayMismatch>& out);

}  // namespace zeroplan::evidence
