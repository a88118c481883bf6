// The words of a command line as flags and values, by the tables of flags.
//
// --flag VALUE, --flag=VALUE, -o VALUE, -oVALUE; a word that is no flag is a positional, and all
// words behind "--" are. A scenario key that is true or false may stand without its value: true.
#pragma once

#include "cli/arguments.hpp"

namespace zeroplan::cli {

// One flag of a command, whatever table it stands in.
struct Flag {
  std::string_view name;        // "--sequence-length"
  std::string_view short_name;  // "--seq", "-o", or empty
  std::string value;            // "N", "FILE"; empty for a switch
  std::string_view help;
  std::string_view group;                         // title in the help
  const ScenarioKeyInfo* key = nullptr;           // of a scenario flag
  const ClusterFlagInfo* cluster_part = nullptr;  // of a cluster flag
};

// Every flag the command takes, in the order of the help.
std::vector<Flag> flags_of(const CommandInfo& command);

// Throws InputError for an unknown flag, a missing value, a flag said twice, a wrong value, and too
// few or too many positionals.
Arguments parse_words(const CommandInfo& command, const std::vector<std::string>& words);

}  // namespace zeroplan::cli
