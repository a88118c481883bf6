// A rehearsal as text.
#pragma once

#include <string>

#include "cli/language/translation.hpp"
#include "cli/rehearsal_document.hpp"
#include "model/phrase.hpp"

namespace zeroplan {

std::string rehearse_text(const Rehearsed& rehearsed,
                          const Findings& findings,
                          const Translation& words);

}  // namespace zeroplan
