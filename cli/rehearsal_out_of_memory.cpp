#include "cli/rehearsal_out_of_memory.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/diagnostic.hpp"
#include "cli/remedies.hpp"
#include "cli/table.hpp"
#include "evidence/oom_text.hpp"
#include "model/plan/scenario_reader.hpp"
#include "tuner/fit_question.hpp"

namespace zeroplan::cli {
namespace {

using rehearsal::Frame;
using rehearsal::LivingRow;

using rehearsal::ProcessRecord;

constexpr std::string_view kPackages = "/site-packages/";
constexpr std::size_t kFramesShown = 8;
constexpr std::size_t kRowsShown = 12;
constexpr std::int64_t kSmallest = 1000;  // parts of the largest row

const ProcessRecord* process_of(const Rehearsed& rehearsed) {
  for (const rehearsal::RunRecord& run : rehearsed.runs) {
    for (const ProcessRecord& process : run.processes) {
      if (process.error && process.error->out_of_memory && process.out_of_memory) return &process;
    }
  }
  return nullptr;
}

// "transformers/models/llama/modeling_llama.py": from the package on.
std::string shortened(const std::string& path) {
  const std::size_t at = path.rfind(kPackages);
  return at == std::string::npos ? path : path.substr(at + kPackages.size());
}

Bytes reserve_for(const rehearsal::OutOfMemory& found, const Plan& plan, const StepResult& base) {
  const Bytes gpu = plan.cluster.gpu.memory.value;
  const Bytes missing = found.requested > found.free ? found.requested - found.free : Bytes::zero();
  const Bytes needed = gpu + missing;
  const Bytes predicted = base.gpu.peak_total;
  return predicted < needed ? std::min(needed - predicted, gpu) : Bytes::zero();
}

void add_changes_of(const Prediction& prediction, RehearsedOom& oom) {
  if (!prediction.result) return;
  try {
    const tuner::Variations variations(parse_scenario(prediction.scenario.document, "what ran"));
    oom.plan = variations.base();
    PredictOptions options;
    options.reserve = reserve_for(*oom.found, *oom.plan, *prediction.result);
    oom.base = tuner::played(*oom.plan, options);
    oom.changes = tuner::find_remedies(variations, oom.base, options, Resource::gpu_memory);
  } catch (const InputError&) {
    oom.plan.reset();
  } catch (const SizeOverflow&) {
    oom.plan.reset();
  }
}

std::string living_text(const std::vector<LivingRow>& rows, const Translation& words) {
  if (rows.empty()) return "";
  std::vector<std::vector<Phrase>> cells;
  for (std::size_t i = 0; i < std::min(kRowsShown, rows.size()); ++i) {
    const LivingRow& row = rows[i];
    if (row.bytes * kSmallest < rows.front().bytes) break;
    const bool placed = !row.frame.file.empty();
    cells.push_back(
        {fixed_text(row.bytes.gib(), 2),
         count_text(row.tensors),
         row.module.empty() ? row.kind : row.module,
         placed ? fmt::format(
                      "{}:{} {}", shortened(row.frame.file), row.frame.line, row.frame.function)
                : ""});
  }
  const std::vector<Column> columns = {
      {"GiB", Align::right}, {"tensors", Align::right}, {"what lives then"}, {"asked for in"}};
  return "\n" + table(columns, cells, words);
}

}  // namespace

std::optional<RehearsedOom> out_of_memory_of(const Rehearsed& rehearsed,
                                             const Prediction& prediction) {
  const ProcessRecord* process = process_of(rehearsed);
  if (process == nullptr) return std::nullopt;
  RehearsedOom oom;
  oom.found = &*process->out_of_memory;
  oom.living = &process->living;
  const std::vector<evidence::OomEvent> events = evidence::read_oom_text(process->error->message);
  if (!events.empty()) oom.causes = evidence::diagnose(events.front());
  add_changes_of(prediction, oom);
  return oom;
}

Phrase frames_text(const std::vector<Frame>& frames) {
  const auto is_packaged = [](const Frame& frame) {
    return frame.file.find(kPackages) != std::string::npos;
  };
  std::vector<Frame> shown;
  for (const Frame& frame : frames) {
    // How torch calls modules and functions says nothing.
    if (!frame.file.ends_with("torch/overrides.py") && !frame.function.ends_with("_call_impl")) {
      shown.push_back(frame);
    }
  }
  std::size_t first = shown.size() - std::min(shown.size(), kFramesShown);
  const auto own = std::find_if_not(shown.rbegin(), shown.rend(), is_packaged);
  Phrase text;
  const auto add = [&](const Frame& frame) {
    text += fmt::format("    {}:{} {}\n", frame.file, frame.line, frame.function);
  };
  // The program's own innermost line, however deep libraries go below it.
  if (own != shown.rend() && shown.rend() - own <= static_cast<std::ptrdiff_t>(first)) add(*own);
  for (; first < shown.size(); ++first) add(shown[first]);
  return text;
}

std::string out_of_memory_text(const RehearsedOom& oom, const Translation& words) {
  const rehearsal::OutOfMemory& found = *oom.found;
  std::string text = words.text(phrase(
      "  in {} of step {}: {} were asked for; {} allocated, {} reserved, {} free on the GPU\n",
      found.phase,
      found.step + 1,
      gib_text(found.requested),
      gib_text(found.allocated),
      gib_text(found.reserved),
      gib_text(found.free)));
  text += frames_text(found.frames) + living_text(*oom.living, words);
  Phrase rest = causes_text(oom.causes);
  if (oom.plan) rest += changes_text(oom.changes, oom.base);
  return text + (rest.empty() ? "" : "\n" + words.text(rest));
}

Json to_json(const RehearsedOom& oom) {
  const rehearsal::OutOfMemory& found = *oom.found;
  Json document = Json::object({{"requested_bytes", found.requested.count()},
                                {"allocated_bytes", found.allocated.count()},
                                {"reserved_bytes", found.reserved.count()},
                                {"free_bytes", found.free.count()},
                                {"phase", found.phase},
                                {"step", found.step},
                                {"frames", frames_json(found.frames)}});
  Json living = Json::array();
  for (const LivingRow& row : *oom.living) {
    Json one =
        Json::object({{"kind", row.kind}, {"bytes", row.bytes.count()}, {"tensors", row.tensors}});
    if (!row.module.empty()) one["module"] = row.module;
    if (!row.frame.file.empty()) {
      one["file"] = row.frame.file;
      one["line"] = row.frame.line;
      one["function"] = row.frame.function;
    }
    living.push_back(one);
  }
  document["living"] = living;
  Json causes = Json::array();
  for (const evidence::OomCause& cause : oom.causes) {
    causes.push_back(Json::object({{"code", std::string(cause.code)},
                                   {"text", cause.text.english()},
                                   {"advice", cause.advice.english()}}));
  }
  document["causes"] = causes;
  if (oom.plan) add_changes(oom.changes, *oom.plan, document);
  return document;
}

}  // namespace zeroplan::cli
