// What --help prints: twenty lines that most people need; everything with --all.
#pragma once

#include <string>

#include "cli/arguments.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan::cli {

std::string overview_help(const Translation& words, bool all);
std::string command_help(const CommandInfo& command, const Translation& words, bool all);

}  // namespace zeroplan::cli
