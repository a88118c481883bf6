// Recorded events and the policies' actions as the same compact text: ["g",7].
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "model/engine/engine_action.hpp"

namespace zeroplan::evidence {

// A recorded value without spaces.
std::string event_text(const Json& value);

// Name of a dtype in recordings: "bf16", "u8", "i64".
std::string_view recorded_dtype(DType dtype);

// The recorded form of an action, or "" where a recording has no event for it (casts, copies,
// norms, scaling). stage: of the engine. outstanding: length of its queue of reduce events, which
// throttle and record_event change. finished: events are always finished, so nothing blocks.
std::string event_text(const EngineAction& action,
                       const EngineActions& actions,
                       int stage,
                       bool finished,
                       int& outstanding);

}  // namespace zeroplan::evidence
