// What to do about an error that a rehearsed program ended with, where its text is known.
#pragma once

#include <string>

#include "rehearsal/rehearse.hpp"

namespace zeroplan {

// Empty where nothing is known.
std::string hint_of(const rehearsal::ProgramError& error);

}  // namespace zeroplan
