// zeroplan replay: the engine policies held against recordings of DeepSpeed.
#include <ostream>

#include "cli/commands.hpp"
#include "cli/language/translation.hpp"
#include "evidence/replay.hpp"
#include "model/diagnostic.hpp"

namespace zeroplan {

int run_replay(const Arguments& arguments, Streams streams) {
  const ReplayReport report = replay_file(arguments.positionals.front());
  const Translation words(arguments.language);
  for (const Diagnostic& problem : report.bad_lines) {
    streams.log << words.text(to_string(problem)) << "\n";
  }
  if (arguments.json) {
    streams.out << to_json(report).dump(2) << "\n";
  } else {
    for (const ReplayMismatch& mismatch : report.mismatches) {
      streams.out << printable(mismatch.id) << " step " << mismatch.step << " event "
                  << mismatch.event << ": expected " << printable(mismatch.expected) << ", got "
                  << printable(mismatch.got) << "\n";
    }
    streams.out << report.reproduced << " of " << report.configurations
                << " recordings reproduced\n";
  }
  if (!report.mismatches.empty()) return kAnswerIsNo;
  return report.bad_lines.empty() ? kDone : kSomeBadLines;
}

}  // namespace zeroplan
