// The scenario document (docs/contract.md section 1) of what ran, from the facts that it said of
// itself.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "rehearsal/rehearse.hpp"

namespace zeroplan::rehearsal {

struct RecordedScenario {
  Json document;              // null where something that every scenario needs was not seen
  std::string missing;        // what, as a sentence's end: "a model of transformers"
  std::vector<Phrase> notes;  // what ran otherwise than a scenario can say
};

RecordedScenario scenario_of(const ProcessRecord& process, const std::string& cluster);

}  // namespace zeroplan::rehearsal
