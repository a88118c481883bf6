// What to do about an error that a rehearsed program ended with, where its text is known.
#pragma once

#include <string>

#include "base/phrase.hpp"
#include "rehearsal/rehearse.hpp"

namespace zeroplan::cli {

// Empty where nothing is known.
Phrase hint_of(const rehearsal::ProgramError& error);

}  // namespace zeroplan::cli
