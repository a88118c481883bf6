// A rehearsal as text.
#pragma once

#include <string>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "cli/rehearsal_document.hpp"

namespace zeroplan::cli {

std::string rehearse_text(const Rehearsed& rehearsed,
                          const Findings& findings,
                          const Translation& words);

}  // namespace zeroplan::cli
