// Phases of a run as JSON (docs/contract.md section 4, `models` and `phases`).
#pragma once

#include "base/json.hpp"
#include "model/predict/run_phases.hpp"

namespace zeroplan {

// Sets `models`, `phases`, `peak_phase_of_run` and `memory_choices` of a step's document.
void add_run_phases(const RunPhases& run, Json& document);

}  // namespace zeroplan
