#include "cli/rehearsed.hpp"

#include <algorithm>
#include <map>

#include "base/diagnostic.hpp"
#include "cli/unknown_model.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::cli {
namespace {

using rehearsal::Frame;
using rehearsal::ProcessRecord;
using rehearsal::RunRecord;

}  // namespace

const ProcessRecord* largest_process(const RunRecord& run) {
  const ProcessRecord* found = nullptr;
  for (const ProcessRecord& process : run.processes) {
    if (found == nullptr ||
        rehearsal::peak_allocated(*found) < rehearsal::peak_allocated(process)) {
      found = &process;
    }
  }
  return found;
}

Outcome outcome_of(const RunRecord& run) {
  const bool memory = (run.error && run.error->out_of_memory) ||
                      std::any_of(run.processes.begin(), run.processes.end(), [](const auto& p) {
                        return p.error && p.error->out_of_memory;
                      });
  if (memory) return Outcome::out_of_memory;
  if (run.exit != 0 || run.signal != 0) return Outcome::failed;
  return run.processes.empty() ? Outcome::used_no_gpu : Outcome::ran;
}

Json frames_json(const std::vector<Frame>& frames) {
  Json list = Json::array();
  for (const Frame& frame : frames) {
    list.push_back(
        Json::object({{"file", frame.file}, {"line", frame.line}, {"function", frame.function}}));
  }
  return list;
}

Outcome Rehearsed::outcome() const {
  for (const RunRecord& run : runs) {
    const Outcome outcome = outcome_of(run);
    if (outcome != Outcome::ran) return outcome;
  }
  return Outcome::ran;
}

const ProcessRecord* Rehearsed::process() const {
  const ProcessRecord* found = nullptr;
  for (const RunRecord& run : runs) {
    if (run.events != runs.front().events) continue;
    const ProcessRecord* process = largest_process(run);
    if (process == nullptr) continue;
    if (found == nullptr ||
        rehearsal::peak_allocated(*found) < rehearsal::peak_allocated(*process)) {
      found = process;
    }
  }
  return found;
}

std::int64_t Rehearsed::rank() const {
  const ProcessRecord* shown = process();
  return shown != nullptr && shown->end ? shown->end->rank : request.rank;
}

namespace {

// The most that a process reserves, by when events end.
std::map<rehearsal::Events, Bytes> reserved_by_events(const std::vector<RunRecord>& runs) {
  std::map<rehearsal::Events, Bytes> most;
  for (const RunRecord& run : runs) {
    for (const ProcessRecord& process : run.processes) {
      Bytes& known = most[run.events];
      known = std::max(known, rehearsal::peak_reserved(process));
    }
  }
  return most;
}

}  // namespace

Bytes Rehearsed::least_reserved() const {
  Bytes least = Bytes::infinite();
  for (const auto& [events, bytes] : reserved_by_events(runs)) least = std::min(least, bytes);
  return least.is_infinite() ? Bytes::zero() : least;
}

Bytes Rehearsed::most_reserved() const {
  Bytes most;
  for (const auto& [events, bytes] : reserved_by_events(runs)) most = std::max(most, bytes);
  return most;
}

std::vector<Rehearsed::RankPeaks> Rehearsed::ranks() const {
  std::map<std::int64_t, RankPeaks> known;
  for (const RunRecord& run : runs) {
    for (const ProcessRecord& process : run.processes) {
      const std::int64_t rank = process.end ? process.end->rank : run.rank;
      RankPeaks& peaks = known[rank];
      peaks.rank = rank;
      peaks.allocated = std::max(peaks.allocated, rehearsal::peak_allocated(process));
      peaks.reserved = std::max(peaks.reserved, rehearsal::peak_reserved(process));
    }
  }
  std::vector<RankPeaks> all;
  for (const auto& [rank, peaks] : known) all.push_back(peaks);
  return all;
}

const rehearsal::ProgramError* Rehearsed::error() const {
  const rehearsal::ProgramError* found = nullptr;
  for (const RunRecord& run : runs) {
    for (const ProcessRecord& process : run.processes) {
      if (process.error && (found == nullptr || process.error->out_of_memory)) {
        found = &*process.error;
      }
    }
    if (found == nullptr && run.error) found = &*run.error;
  }
  return found;
}

Prediction predict(const Rehearsed& rehearsed, std::ostream& log, const Translation& words) {
  Prediction prediction;
  const ProcessRecord* process = rehearsed.process();
  if (process == nullptr) {
    prediction.problem = "nothing was seen on the GPU";
    return prediction;
  }
  prediction.scenario = rehearsal::scenario_of(*process, rehearsed.cluster);
  if (prediction.scenario.document.is_null()) {
    prediction.problem = phrase("not seen in what ran: {}", prediction.scenario.missing);
    return prediction;
  }
  try {
    const Scenario scenario =
        with_known_model(parse_scenario(prediction.scenario.document, "what ran"), log, words);
    simulator::SimulateOptions options;
    options.rank = static_cast<int>(rehearsed.rank());
    prediction.result = simulator::simulate(resolve(scenario), options);
  } catch (const InputError& error) {
    const Diagnostic& first = error.diagnostics().front();
    prediction.problem =
        phrase("{}: {}", first.pointer, phrase("expected {}, got {}", first.expected, first.got));
  } catch (const SizeOverflow&) {
    prediction.problem = "sizes that are together too large to count";
  }
  return prediction;
}

}  // namespace zeroplan::cli
