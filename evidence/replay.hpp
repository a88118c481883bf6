// `zeroplan replay TRACES.jsonl`: every recording of a file against the engine policies.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/json.hpp"
#include "evidence/replay_mismatch.hpp"

namespace zeroplan::evidence {

struct ReplayReport {
  int configurations = 0;  // recordings that could be read
  int reproduced = 0;      // without a mismatch
  std::vector<ReplayMismatch> mismatches;
  std::vector<Diagnostic> bad_lines;  // lines that are no recording; the others go on
};

// One recording: replay_fetch and replay_reduce. Throws InputError.
std::vector<ReplayMismatch> replay_recording(const Json& recording);

// Reads recordings, one JSON object a line; empty lines are skipped. `file`: name for messages.
ReplayReport replay_text(std::string_view lines, const std::string& file);

// {"schema":"zeroplan.replay/1","configurations":n,"reproduced":n,"mismatches":[...]}
Json to_json(const ReplayReport& report);

}  // namespace zeroplan::evidence
