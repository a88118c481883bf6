#include "evidence/replay.hpp"

#include "evidence/json_lines.hpp"
#include "evidence/replay_fetch.hpp"
#include "evidence/replay_reduce.hpp"

namespace zeroplan::evidence {

std::vector<ReplayMismatch> replay_recording(const Json& recording) {
  std::vector<ReplayMismatch> mismatches = replay_reduce(recording);
  for (ReplayMismatch& mismatch : replay_fetch(recording)) {
    mismatches.push_back(std::move(mismatch));
  }
  return mismatches;
}

ReplayReport replay_text(std::string_view text, const std::string& file) {
  ReplayReport report;
  report.bad_lines = read_json_lines(text, file, [&](const JsonDocument& document, int) {
    std::vector<ReplayMismatch> found = replay_recording(document.root);
    ++report.configurations;
    if (found.empty()) ++report.reproduced;
    for (ReplayMismatch& mismatch : found) report.mismatches.push_back(std::move(mismatch));
  });
  return report;
}

Json to_json(const ReplayReport& report) {
  Json mismatches = Json::array();
  for (const ReplayMismatch& mismatch : report.mismatches) mismatches.push_back(to_json(mismatch));
  return Json::object({{"schema", "zeroplan.replay/1"},
                       {"configurations", report.configurations},
                       {"reproduced", report.reproduced},
                       {"mismatches", std::move(mismatches)}});
}

}  // namespace zeroplan::evidence
