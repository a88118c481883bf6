// What --help prints.
#pragma once

#include <string>

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan {

std::string overview_help(const Translation& words);
std::string command_help(const CommandInfo& command, const Translation& words);

}  // namespace zeroplan
