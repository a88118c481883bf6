// A program that was rehearsed, and what is predicted of the same run.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cli/language/translation.hpp"
#include "model/predict/step_result.hpp"
#include "rehearsal/recorded_scenario.hpp"
#include "rehearsal/rehearse.hpp"

namespace zeroplan::cli {

enum class Outcome { ran, out_of_memory, failed, used_no_gpu };

// Runs of one request: of one rank or of several one after the other, at one end of what events can
// do or at both.
struct Rehearsed {
  rehearsal::Request request;
  rehearsal::TorchInstall torch;
  std::string cluster;                     // as a scenario says it
  std::vector<rehearsal::RunRecord> runs;  // at least one when anything is asked

  // The worst of the runs.
  Outcome outcome() const;
  // The process with the largest allocated peak, of runs with the first one's end of events; null
  // where none used the GPU.
  const rehearsal::ProcessRecord* process() const;
  std::int64_t rank() const;  // of that process
  // What the worst process reserves, at the end of events where that is least, and most.
  Bytes least_reserved() const;
  Bytes most_reserved() const;
  // The error that ended the program; null where none was seen.
  const rehearsal::ProgramError* error() const;
  // What each rank took, by rank; of several runs of one the largest.
  struct RankPeaks {
    std::int64_t rank = 0;
    Bytes allocated, reserved;
  };
  std::vector<RankPeaks> ranks() const;
};

Outcome outcome_of(const rehearsal::RunRecord& run);
// The one with the largest allocated peak; null where there is none.
const rehearsal::ProcessRecord* largest_process(const rehearsal::RunRecord& run);
Json frames_json(const std::vector<rehearsal::Frame>& frames);

struct Prediction {
  rehearsal::RecordedScenario scenario;
  std::optional<StepResult> result;
  Phrase problem;  // why there is none
};

// Never throws for what ran: a scenario that cannot be predicted is a sentence. A class that is not
// known is asked (unknown_model.hpp), which `log` is told.
Prediction predict(const Rehearsed& rehearsed, std::ostream& log, const Translation& words);

}  // namespace zeroplan::cli
