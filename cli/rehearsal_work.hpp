// What a step of a rehearsed program put on the GPU, beside what the simulated program of the same
// scenario does: zeroplan.rehearsal/1 "work", and a list of differences.
#pragma once

#include <optional>
#include <string>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "cli/rehearsed.hpp"
#include "simulator/work_count.hpp"

namespace zeroplan::cli {

struct RehearsedWork {
  std::optional<simulator::WorkByPhase> rehearsed;
  std::optional<simulator::WorkByPhase> predicted;  // absent where there is no prediction
  Phrase problem;                                   // why something is absent
};

// Of runs whose work was kept with torch's operations around it; of the rank that comes first.
RehearsedWork work_of(const Rehearsed& rehearsed, const Prediction& prediction);

Json to_json(const RehearsedWork& work);
std::string work_text(const RehearsedWork& work, const Translation& words);

}  // namespace zeroplan::cli
