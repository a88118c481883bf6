// What --help prints: twenty lines that most people need; everything with --all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/flags.hpp"
#include "cli/language/translation.hpp"

namespace zeroplan::cli {

// The help of a positional.
std::string_view positional_help(const CommandInfo& command, std::string_view name);
// The command's own flags, the most wanted first, then what most people say of a scenario.
std::vector<Flag> usual_flags(const CommandInfo& command);

std::string overview_help(const Translation& words, bool all);
std::string command_help(const CommandInfo& command, const Translation& words, bool all);

}  // namespace zeroplan::cli
