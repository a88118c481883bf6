// What a rehearsal found, beside what `simulate` predicts of the same: zeroplan.rehearsal/1, and a
// line of measurements (docs/contract.md sections 5 and 6).
#pragma once

#include <string>

#include "base/json.hpp"
#include "cli/rehearsal_out_of_memory.hpp"
#include "cli/rehearsal_time.hpp"
#include "cli/rehearsal_work.hpp"
#include "cli/rehearsed.hpp"

namespace zeroplan::cli {

// What is said of a rehearsal beside what ran.
struct Findings {
  Prediction prediction;
  const RehearsedOom* oom = nullptr;    // null where memory did not run out
  const RehearsedTime* time = nullptr;  // null where it was not asked for
  const RehearsedWork* work = nullptr;  // likewise
};

Json to_json(const Rehearsed& rehearsed, const Findings& findings);

// With its line break. Precondition: the scenario was seen.
std::string measurement_line(const Rehearsed& rehearsed, const Prediction& prediction);

}  // namespace zeroplan::cli
