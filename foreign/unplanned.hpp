// Settings of other tools that change memory or time and are not planned, and those that change
// neither.
#pragma once

#include <string_view>

#include "base/phrase.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {

// Throws InputError, with the place and the reason, where the setting asks for something that the
// planner does not know: an answer without it would be of another run.
void refuse_unplanned(const Setting& setting, Tool tool);

// Throws InputError with the setting's place: `what` is asked for and not planned.
[[noreturn]] void refuse(const Setting& setting, const Phrase& what);

// Whether a name is a known one of these tools that memory and time of a step do not depend on:
// paths, learning rates, logging, the data's contents.
bool changes_nothing(std::string_view name, Tool tool);

}  // namespace zeroplan::foreign
