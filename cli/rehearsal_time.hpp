// The time of a step of a rehearsed program: zeroplan.rehearsal/1 "time", and a table.
#pragma once

#include <optional>
#include <string>

#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "cli/rehearsed.hpp"
#include "rehearsal/timed_step.hpp"

namespace zeroplan::cli {

struct RehearsedTime {
  std::optional<rehearsal::TimedRun> run;
  Phrase problem;  // why there is none
  bool host_is_timed =
      true;  // false: the two runs differed, and the host's time is of the watched one
};

// timed: a run whose work was kept; watched: another one of the same, with operations. Of the rank
// that comes first.
RehearsedTime time_of(const rehearsal::RunRecord& timed,
                      const rehearsal::RunRecord& watched,
                      const Cluster& cluster,
                      const std::string& torch);

// Did the program's steps work on large tensors of the host, or update weights there?
bool has_host_work(const rehearsal::RunRecord& run);

Json to_json(const RehearsedTime& time);
// Beside what was predicted, where it was.
std::string time_text(const RehearsedTime& time,
                      const Prediction& prediction,
                      const Translation& words);
// Trace Event Format. Precondition: there is a run.
std::string trace_of(const RehearsedTime& time);

}  // namespace zeroplan::cli
