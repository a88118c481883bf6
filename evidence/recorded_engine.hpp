// A recording of a DeepSpeed engine of any stage, read: configuration, parameters, events, and what
// was found in memory. Used by replay_reduce.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "model/engine/engine_config.hpp"
#include "model/software.hpp"

namespace zeroplan::evidence {

struct RecordedEngine {
  std::string id;
  std::string wrapper;  // Python class of the optimizer wrapper
  EngineConfig config;
  std::vector<EngineParameter> parameters;
  bool stopped = false;          // DeepSpeed ended the run by an assertion in the last step
  bool short_form = false;       // recorded without stream operations, cat, pg and W
  bool finished_events = false;  // events always reported themselves finished
  std::vector<std::vector<const Json*>> steps;  // repeated steps are expanded; pointers into the
                                                // recording
  std::vector<std::int64_t> overflow;           // steps whose loss was made infinite
  std::vector<bool> agreement;                  // per step: were its int64 broadcasts recorded
};

// Throws InputError where the document does not have the form of a recording.
RecordedEngine read_recorded_engine(const Json& recording);

// The engine of its run: what the ds_config says, with the defaults of the release that it was
// recorded with, and the place of the rank. Throws InputError naming the pointer.
EngineConfig read_recorded_config(const Json& recording);

// The release in "deepspeed 0.16.4, torch …"; a source tree calls itself 0.0.0 and counts as the
// one that was recorded so.
Version recorded_release(const std::string& software);

// ---- readers shared with replay_reduce; they throw InputError naming the pointer ----

const Json& recorded_member(const Json& object, const std::string& pointer, std::string_view key);
std::int64_t recorded_integer(const Json& value, const std::string& pointer);

}  // namespace zeroplan::evidence
