// The answer of `zeroplan explain`, as text and as the document zeroplan.explain/1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "cli/language/translation.hpp"
#include "evidence/log_symptoms.hpp"
#include "evidence/oom_diagnosis.hpp"
#include "simulator/event_loop.hpp"
#include "tuner/peak_inventory.hpp"
#include "tuner/remedies.hpp"
#include "tuner/sensitivity.hpp"
#include "tuner/size_facts.hpp"

namespace zeroplan::cli {

// A configuration: what uses the memory, what moves it.
struct ConfigExplanation {
  std::string file;
  Plan plan;
  tuner::Sensitivity sensitivity;
  std::optional<tuner::PeakInventory> peak;  // absent for engines that are not simulated
};

// Where the simulated run on that GPU ends.
struct SimulatedEnd {
  simulator::LoopOutOfMemory end;
  std::string label;
};

// The part that needs a scenario.
struct OomRun {
  Plan plan;
  StepResult result;  // on the GPU of the message
  std::vector<tuner::SizeMatch> matches;
  std::optional<SimulatedEnd> end;
  // Where the prediction fits and the log says that it ran out of memory: what the changes must
  // free at least. Absent: it does not fit, or the host's memory ran out.
  std::optional<Bytes> refuted_by;
  // The host's memory ran out, and the run fits where a node has more than usual: the changes are
  // for the usual amount.
  bool host_ran_out = false;
  tuner::Remedies changes;
};

struct OomExplanation {
  std::string file;
  std::vector<evidence::OomEvent> events;
  std::size_t explained = 0;  // index of the event that is explained
  std::vector<evidence::OomCause> causes;
  evidence::LogReading log;  // other failures, and where the traceback runs through
  std::vector<tuner::SizeFact> facts;
  std::optional<OomRun> run;
  Phrase missing;  // what a scenario would add; empty where there is one
};

// A log that tells of no memory that ran out.
struct SymptomExplanation {
  std::string file;
  evidence::LogReading log;
};

std::string explain_text(const SymptomExplanation& explanation, const Translation& words);
Json explain_json(const SymptomExplanation& explanation);
std::string explain_text(const ConfigExplanation& explanation, const Translation& words);
std::string explain_text(const OomExplanation& explanation, const Translation& words);
Json explain_json(const ConfigExplanation& explanation);
Json explain_json(const OomExplanation& explanation);

// Parts of the answer, for other commands. `base` is what the changes change.
Phrase causes_text(const std::vector<evidence::OomCause>& causes);
void add_changes(const tuner::Remedies& changes, const Plan& base, Json& document);

}  // namespace zeroplan::cli
