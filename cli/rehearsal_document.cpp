#include "cli/rehearsal_document.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "cli/rehearsal_hint.hpp"
#include "cli/rehearsal_out_of_memory.hpp"
#include "cli/rehearsal_time.hpp"
#include "cli/rehearsal_work.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/scenario_reader.hpp"
#include "model/predict/io_step_result.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan::cli {
namespace {

using rehearsal::PhaseRow;
using rehearsal::ProcessRecord;
using rehearsal::RunRecord;

constexpr const char* kOutcomeNames[] = {"ran", "out_of_memory", "failed", "used_no_gpu"};

Json row_json(const PhaseRow& row) {
  return Json::object({{"phase", row.phase},
                       {"step", row.step},
                       {"micro_batch", row.micro_batch},
                       {"allocated_bytes", row.allocated.count()},
                       {"peak_allocated_bytes", row.peak_allocated.count()},
                       {"reserved_bytes", row.reserved.count()},
                       {"peak_reserved_bytes", row.peak_reserved.count()},
                       {"host_bytes", row.host.count()},
                       {"peak_host_bytes", row.peak_host.count()},
                       {"pinned_bytes", row.pinned.count()},
                       {"peak_pinned_bytes", row.peak_pinned.count()},
                       {"cuda_mallocs", row.cuda_mallocs},
                       {"retries", row.retries}});
}

Json optional_bytes(const std::optional<Bytes>& bytes) {
  return bytes ? Json(bytes->count()) : Json();
}

// Of the process that has the largest peak.
void add_process(Json& document, const Rehearsed& rehearsed, const ProcessRecord& process) {
  document["peak_allocated_bytes"] = rehearsal::peak_allocated(process).count();
  document["peak_reserved_bytes"] = rehearsed.most_reserved().count();
  document["peak_reserved_range"] =
      Json::array({rehearsed.least_reserved().count(), rehearsed.most_reserved().count()});
  document["static_allocated_bytes"] = optional_bytes(rehearsal::static_allocated(process));
  Bytes host;
  Bytes pinned;
  Json rows = Json::array();
  for (const PhaseRow& row : process.rows) {
    host = std::max(host, row.peak_host);
    pinned = std::max(pinned, row.peak_pinned);
    rows.push_back(row_json(row));
  }
  document["host"] = Json::object({{"peak_bytes", host.count()}, {"pinned_bytes", pinned.count()}});
  Json counts = Json::object();
  Json unknown = Json::array();
  if (process.end) {
    document["steps"] = process.end->steps;
    document["rank"] = process.end->rank;
    for (const auto& [name, count] : process.end->counts) counts[name] = count;
    for (const std::string& name : process.end->unknown_functions) unknown.push_back(name);
  }
  Json unknown_values = Json::array();
  for (const rehearsal::UnknownValue& value : process.unknown_values) {
    unknown_values.push_back(Json::object({{"what", value.what},
                                           {"file", value.frame.file},
                                           {"line", value.frame.line},
                                           {"function", value.frame.function},
                                           {"source", value.source}}));
  }
  document["unknown_values"] = unknown_values;
  document["skipped_steps"] = process.skipped_steps();
  document["counts"] = counts;
  document["unknown_functions"] = unknown;
  document["phases"] = rows;
  if (rehearsed.runs.front().events == rehearsal::Events::real) {
    Json seconds = Json::array();
    for (const double step : rehearsal::step_seconds(process)) seconds.push_back(step);
    document["step_seconds"] = seconds;
  }
}

// What each run said of reserved memory, by when work on the GPU ends.
Json ends_json(const Rehearsed& rehearsed) {
  Json ends = Json::array();
  for (const RunRecord& run : rehearsed.runs) {
    const ProcessRecord* process = largest_process(run);
    if (process == nullptr) continue;
    ends.push_back(
        Json::object({{"events", std::string(name(rehearsal::kEventsNames, run.events))},
                      {"peak_allocated_bytes", rehearsal::peak_allocated(*process).count()},
                      {"peak_reserved_bytes", rehearsal::peak_reserved(*process).count()}}));
  }
  return ends;
}

Json gpu_json(const rehearsal::EmulatedGpu& gpu) {
  const ComputeCapability& capability = gpu.gpu.compute_capability;
  return Json::object({{"name", gpu.gpu.name},
                       {"memory_bytes", gpu.gpu.memory.value.count()},
                       {"context_bytes", gpu.context.count()},
                       {"compute_capability",
                        std::to_string(capability.major) + "." + std::to_string(capability.minor)},
                       {"multiprocessors", gpu.gpu.sm_count.value}});
}

Json error_of(const Rehearsed& rehearsed) {
  const rehearsal::ProgramError* error = rehearsed.error();
  if (error == nullptr) return {};
  Json said = Json::object(
      {{"type", error->type}, {"message", error->message}, {"frames", frames_json(error->frames)}});
  const Phrase hint = hint_of(*error);
  if (!hint.empty()) said["hint"] = hint.english();
  return said;
}

Json ranks_json(const Rehearsed& rehearsed) {
  Json ranks = Json::array();
  for (const Rehearsed::RankPeaks& peaks : rehearsed.ranks()) {
    ranks.push_back(Json::object({{"rank", peaks.rank},
                                  {"peak_allocated_bytes", peaks.allocated.count()},
                                  {"peak_reserved_bytes", peaks.reserved.count()}}));
  }
  return ranks;
}

}  // namespace

Json to_json(const Rehearsed& rehearsed, const Findings& findings) {
  const Prediction& prediction = findings.prediction;
  Json document = Json::object();
  document["schema"] = "zeroplan.rehearsal/1";
  const Outcome outcome = rehearsed.outcome();
  document["ran"] = outcome == Outcome::ran;
  document["outcome"] = kOutcomeNames[static_cast<std::size_t>(outcome)];
  document["exit"] = rehearsed.runs.back().exit;
  document["gpu"] = gpu_json(rehearsed.request.gpu);
  document["ranks"] = rehearsed.request.ranks;
  document["software"] =
      Json::object({{"torch", rehearsed.torch.version}, {"cuda", rehearsed.torch.cuda}});
  if (const ProcessRecord* process = rehearsed.process()) {
    add_process(document, rehearsed, *process);
  }
  document["ends"] = ends_json(rehearsed);
  document["ranks_seen"] = ranks_json(rehearsed);
  document["out_of_memory"] = findings.oom == nullptr ? Json() : to_json(*findings.oom);
  document["time"] = findings.time == nullptr ? Json() : to_json(*findings.time);
  if (findings.work != nullptr) document["work"] = to_json(*findings.work);
  document["error"] = error_of(rehearsed);
  document["scenario"] = prediction.scenario.document;
  document["prediction"] = prediction.result ? to_json(*prediction.result) : Json();
  document["prediction_problem"] =
      prediction.problem.empty() ? Json() : Json(prediction.problem.english());
  Json notes = Json::array();
  for (const std::string& note : prediction.scenario.notes) notes.push_back(note);
  document["notes"] = notes;
  return document;
}

}  // namespace zeroplan::cli
