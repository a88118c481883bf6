// A rehearsal as text.
#pragma once

#include <string>

#include "cli/language/translation.hpp"
#include "cli/rehearsal_document.hpp"
#include "cli/rehearsal_out_of_memory.hpp"

namespace zeroplan {

// `oom` is null where memory did not run out.
std::string rehearse_text(const Rehearsed& rehearsed,
                          const Prediction& prediction,
                          const RehearsedOom* oom,
                          const Translation& words);

}  // namespace zeroplan
