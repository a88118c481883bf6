// Memory by phase and the models beside the trained one, as text.
#pragma once

#include <string>

#include "base/phrase.hpp"
#include "model/predict/run_phases.hpp"

namespace zeroplan {

Phrase run_phases_text(const RunPhases& run);

}  // namespace zeroplan
