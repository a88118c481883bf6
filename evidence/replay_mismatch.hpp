// One difference between a recording of the real engine and zeroplan's policies replayed on it.
// `zeroplan replay` prints a list of these (schema zeroplan.replay/1).
#pragma once

#include <string>

#include "base/json.hpp"

namespace zeroplan::evidence {

struct ReplayMismatch {
  std::string id;        // of the recording
  int step = 0;          // optimizer step, from 0
  int event = 0;         // position in the recorded step's event list; its length when events lack
  std::string expected;  // what the engine did
  std::string got;       // what the policy did
};

// {"id":…,"step":…,"event":…,"expected":…,"got":…}
Json to_json(const ReplayMismatch& mismatch);

}  // namespace zeroplan::evidence
