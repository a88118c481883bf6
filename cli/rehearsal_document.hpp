// What a rehearsal found, beside what `simulate` predicts of the same: zeroplan.rehearsal/1, and a
// line of measurements (docs/contract.md sections 5 and 6).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/json.hpp"
#include "model/predict/step_result.hpp"
#include "rehearsal/recorded_scenario.hpp"
#include "rehearsal/rehearse.hpp"

namespace zeroplan {

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
  // where none used the card.
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
Json frames_json(const std::vector<rehearsal::Frame>& frames);

struct Prediction {
  rehearsal::RecordedScenario scenario;
  std::optional<StepResult> result;
  std::string problem;  // why there is none
};

// Never throws for what ran: a scenario that cannot be predicted is a sentence.
Prediction predict(const Rehearsed& rehearsed);

struct RehearsedOom;   // rehearsal_out_of_memory.hpp
struct RehearsedTime;  // rehearsal_time.hpp
struct RehearsedWork;  // rehearsal_work.hpp

// What is said of a rehearsal beside what ran.
struct Findings {
  Prediction prediction;
  const RehearsedOom* oom = nullptr;    // null where memory did not run out
  const RehearsedTime* time = nullptr;  // null where it was not asked for
  const RehearsedWork* work = nullptr;  // likewise
};

Json to_json(const Rehearsed& rehearsed, const Findings& findings);

// With its line break. Precondition: the scenario was seen.
std::string measurement_line(const Rehearsed& rehearsed, const Prediction& prediction);

}  // namespace zeroplan
