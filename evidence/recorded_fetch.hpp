// A stage-3 recording, read: the model, the engine's configuration, and the events of every step.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/engine/engine_config.hpp"
#include "model/engine/fetch_schedule.hpp"

namespace zeroplan::evidence {

struct RecordedFetch {
  std::string id;
  FetchModel model;  // persistent, on_drive: as recorded
  EngineConfig config;
  bool host_waits = true;     // false: recorded with events that were always finished
  bool agreement = true;      // false: the broadcasts comparing the trace could not be recorded
  bool stream_events = true;  // false: a short recording without waits, copies, stream operations
  std::vector<std::vector<const Json*>> steps;  // events; repeated steps are expanded
};

// Whether the recording is of the stage-3 engine at all.
bool is_stage3_recording(const Json& recording);

// Precondition: is_stage3_recording. The events point into `recording`. Throws InputError.
RecordedFetch read_recorded_fetch(const Json& recording);

}  // namespace zeroplan::evidence
