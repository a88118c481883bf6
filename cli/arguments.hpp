// What a command gets from the command line, and the table of commands.
#pragma once

#include <iosfwd>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/phrase.hpp"
#include "cli/ds_config_flags.hpp"
#include "cli/language/language.hpp"
#include "foreign/form_text.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::cli {

inline constexpr const char* kCommandLine =
    "command line";  // the `file` of diagnostics about flags

// One option of a command besides the scenario's flags.
struct OptionInfo {
  std::string_view flag;        // "--output"
  std::string_view short_flag;  // "-o", or empty
  std::string_view value;       // what stands behind it in the help; empty for a switch
  std::string_view help;
};

// A part of the cluster, said apart from its name: `fit 7B RTX4090-24G --host-memory 64G`.
struct ClusterFlagInfo {
  enum class Kind { bytes, gigabits, count };
  std::string_view flag;
  std::string_view section;  // of the inline cluster; empty for its top
  std::string_view key;
  Kind kind;
  std::string_view value;  // for the help
  std::string_view help;
};

std::span<const ClusterFlagInfo> cluster_flags();

// The parts of a flag's value between separators, empty ones too: "a,,b" has three.
std::vector<std::string> parts_of(const std::string& value, char separator);

struct Arguments {
  std::vector<std::string> positionals;
  Scenario flags;  // scenario keys that were said as flags or positionals
  std::vector<std::pair<const ClusterFlagInfo*, Json>> cluster_changes;
  std::vector<DsConfigFlag> ds_config;       // its keys that were said as flags
  std::optional<std::string> scenario_file;  // --scenario
  Scenario from;                             // what --from read: over the file, below the flags
  Phrase from_said;                          // the lines that say so
  std::optional<std::string> from_file;      // --from itself
  std::string from_tool;                     // whose file that is, as --form calls it; empty: none
  std::string data, tokenizer;  // file and folder that the dataset was counted from; empty: none
  foreign::FormSettings from_kept;             // its settings without influence, of a document
  std::vector<Phrase> from_unread;             // its arguments that a shell alone knows
  std::map<std::string, std::string> options;  // by long name without dashes; "" for a switch
  bool json = false;
  Language language = Language::en;
  Language document_language = Language::en;  // of the sentences of fit's and report's documents

  bool has(const std::string& option) const { return options.count(option) > 0; }
  std::optional<std::string> text(const std::string& option) const;
  // A whole number within [min, max]; InputError otherwise.
  std::optional<std::int64_t> integer(
      const std::string& option,
      std::int64_t min,
      std::int64_t max = std::numeric_limits<std::int64_t>::max()) const;
  // A real number within [min, max]; InputError otherwise.
  std::optional<double> real(const std::string& option, double min, double max) const;
};

// The scenario that flags and file make together.
Scenario scenario_of(const Arguments& arguments);

// `base` with what the flags say over it.
Scenario with_flags(const Scenario& base, const Arguments& arguments);

// A cluster as it was said, with what the cluster flags say of its parts. Throws InputError.
Json with_cluster_parts(const Json& said, const Origin& origin, const Arguments& arguments);

// A cluster flag's text as the value of its key: "64G" -> 64000000000. Throws InputError.
Json parse_cluster_flag(const ClusterFlagInfo& flag, std::string_view text);

// Exit codes of docs/contract.md section 3.
// A signal's is 128 more than its number: interrupt.hpp.
enum ExitCode { kDone = 0, kInternalError = 1, kBadInput = 2, kAnswerIsNo = 3, kSomeBadLines = 4 };

// Where a command writes: results to `out`, progress and diagnostics to `log`.
struct Streams {
  std::ostream& out;
  std::ostream& log;
};

struct CommandInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view
      positionals;      // for the help: "MODEL CLUSTER?"; '?': optional, '+': one or more, '*': any
  bool takes_scenario;  // accepts every scenario flag and --scenario
  std::span<const OptionInfo> options;
  std::string_view examples;  // lines for the help
  int (*run)(const Arguments&, Streams);
};

// All commands, in the order of the help.
std::span<const CommandInfo> commands();
// The one of that name; null: there is none.
const CommandInfo* command_named(std::string_view name);

struct Positional {
  std::string_view name;
  bool required = true;
  bool many = false;  // the last one: takes all words that are left
};

std::vector<Positional> positionals_of(const CommandInfo& command);

}  // namespace zeroplan::cli
