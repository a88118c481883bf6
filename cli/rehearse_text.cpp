#include "cli/rehearse_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/rehearsal_hint.hpp"
#include "cli/rehearsal_out_of_memory.hpp"
#include "cli/rehearsal_time.hpp"
#include "cli/rehearsal_work.hpp"
#include "cli/table.hpp"

namespace zeroplan::cli {
namespace {

using rehearsal::PhaseRow;
using rehearsal::ProcessRecord;

Phrase verdict_text(const Rehearsed& rehearsed) {
  switch (rehearsed.outcome()) {
    case Outcome::ran: {
      const std::int64_t steps = rehearsed.process()->end ? rehearsed.process()->end->steps : 0;
      return phrase("it ran: {} steps\n", steps);
    }
    case Outcome::out_of_memory:
      return "out of memory\n";
    case Outcome::used_no_gpu:
      return "it ended without using the GPU\n";
    case Outcome::failed:
      return rehearsed.runs.back().signal != 0
                 ? "interrupted\n"
                 : phrase("it failed: exit code {}\n", rehearsed.runs.back().exit);
  }
  return "";
}

Phrase gpu_text(const Rehearsed& rehearsed) {
  const rehearsal::EmulatedGpu& gpu = rehearsed.request.gpu;
  const ProcessRecord* process = rehearsed.process();
  const bool known = process != nullptr && process->end;
  return phrase("rank {} of {} on {}: {}, of which {} are context and NCCL\n",
                known ? process->end->rank : rehearsed.request.rank,
                rehearsed.request.ranks,
                gpu.gpu.name,
                gib_text(gpu.gpu.memory.value),
                gib_text(gpu.context));
}

// The micro-batches of a step's phase in one row.
std::vector<PhaseRow> merged(const std::vector<PhaseRow>& rows) {
  std::vector<PhaseRow> result;
  for (const PhaseRow& row : rows) {
    const bool after = row.phase == "idle" || row.phase == "end";
    PhaseRow* same = nullptr;
    for (PhaseRow& known : result) {
      if (known.phase == row.phase && known.step == row.step) same = &known;
    }
    if (after && !result.empty()) same = &result.back();
    if (same == nullptr) {
      result.push_back(row);
      continue;
    }
    PhaseRow joined = row;
    joined.phase = same->phase;
    joined.step = same->step;
    joined.peak_allocated = std::max(same->peak_allocated, row.peak_allocated);
    joined.peak_reserved = std::max(same->peak_reserved, row.peak_reserved);
    joined.peak_pinned = std::max(same->peak_pinned, row.peak_pinned);
    *same = joined;
  }
  return result;
}

std::string name_of(const PhaseRow& row, const Translation& words) {
  if (row.phase == "model" || row.phase == "init") return words.text(row.phase);
  return fmt::format("{} {}", row.step + 1, words.text(row.phase));
}

std::string phases_text(const ProcessRecord& process, const Translation& words) {
  const std::vector<Column> columns = {{"GiB"},
                                       {"allocated", Align::right},
                                       {"peak", Align::right},
                                       {"reserved", Align::right},
                                       {"pinned", Align::right},
                                       {"cudaMalloc", Align::right},
                                       {"retries", Align::right}};
  std::vector<std::vector<Phrase>> cells;
  std::int64_t mallocs = 0;
  std::int64_t retries = 0;
  for (const PhaseRow& row : merged(process.rows)) {
    cells.push_back({name_of(row, words),
                     fixed_text(row.allocated.gib(), 2),
                     fixed_text(row.peak_allocated.gib(), 2),
                     fixed_text(row.peak_reserved.gib(), 2),
                     fixed_text(row.pinned.gib(), 2),
                     count_text(row.cuda_mallocs - mallocs),
                     count_text(row.retries - retries)});
    mallocs = row.cuda_mallocs;
    retries = row.retries;
  }
  return table(columns, cells, words);
}

Phrase error_text(const Rehearsed& rehearsed) {
  const rehearsal::ProgramError* error = rehearsed.error();
  if (error == nullptr || rehearsed.outcome() != Outcome::failed) return "";
  const std::string first_line = error->message.substr(0, error->message.find('\n'));
  const Phrase hint = hint_of(*error);
  Phrase text = phrase("  {}: {}\n", error->type, first_line);
  text += frames_text(error->frames);
  if (!hint.empty()) text += phrase("hint: {}\n", hint);
  return text;
}

std::string ranks_text(const Rehearsed& rehearsed, const Translation& words) {
  const std::vector<Rehearsed::RankPeaks> ranks = rehearsed.ranks();
  if (ranks.size() < 2) return "";
  std::vector<std::vector<Phrase>> cells;
  for (const Rehearsed::RankPeaks& peaks : ranks) {
    cells.push_back({std::to_string(peaks.rank),
                     fixed_text(peaks.allocated.gib(), 2),
                     fixed_text(peaks.reserved.gib(), 2)});
  }
  const std::vector<Column> columns = {
      {"rank", Align::right}, {"peak allocated", Align::right}, {"peak reserved", Align::right}};
  return "\n" + table(columns, cells, words);
}

std::string error_percent(Bytes predicted, Bytes measured) {
  if (measured == Bytes::zero()) return "-";
  const double error = predicted / measured - 1.0;
  return fmt::format("{:+.1f} %", error * 100.0);
}

std::string comparison_text(const Rehearsed& rehearsed,
                            const Prediction& prediction,
                            const Translation& words) {
  const ProcessRecord& process = *rehearsed.process();
  const bool ranged = rehearsed.least_reserved() != rehearsed.most_reserved();
  struct Row {
    const char* what;
    Bytes measured;
    std::optional<Bytes> predicted;
  };
  std::vector<Row> rows = {{"peak allocated", rehearsal::peak_allocated(process), {}}};
  rows.push_back(
      {ranged ? "peak reserved, at least" : "peak reserved", rehearsed.least_reserved(), {}});
  if (ranged) rows.push_back({"peak reserved, at most", rehearsed.most_reserved(), {}});
  const auto held = rehearsal::static_allocated(process);
  if (held) rows.push_back({"held between steps", *held, {}});
  if (prediction.result) {
    const GpuMemory& gpu = prediction.result->gpu;
    rows[0].predicted = gpu.peak_allocated;
    for (std::size_t i = 1; i < rows.size(); ++i) {
      const bool reserved = std::string_view(rows[i].what).starts_with("peak");
      rows[i].predicted = reserved ? gpu.peak_reserved : gpu.static_allocated;
    }
  }
  std::vector<std::vector<Phrase>> cells;
  for (const Row& row : rows) {
    cells.push_back({row.what,
                     fixed_text(row.measured.gib(), 2),
                     row.predicted ? fixed_text(row.predicted->gib(), 2) : "-",
                     row.predicted ? error_percent(*row.predicted, row.measured) : "-"});
  }
  const std::vector<Column> columns = {{"GPU memory, GiB"},
                                       {"rehearsed", Align::right},
                                       {"predicted", Align::right},
                                       {"deviation", Align::right}};
  return table(columns, cells, words);
}

// Of a real GPU.
Phrase real_steps_text(const Rehearsed& rehearsed, const Prediction& prediction) {
  if (rehearsed.runs.front().events != rehearsal::Events::real) return "";
  std::vector<double> seconds = rehearsal::step_seconds(*rehearsed.process());
  if (seconds.empty()) return "no step was timed: --steps 5 and more\n";
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  const double median = seconds[seconds.size() / 2];
  Phrase text = phrase("step: {} s in the median of {}", fixed_text(median, 4), seconds.size());
  if (prediction.result) {
    text += phrase(", predicted {} s", fixed_text(prediction.result->step.total.value(), 4));
  }
  return text + "\n";
}

Phrase notes_text(const Rehearsed& rehearsed, const Prediction& prediction) {
  Phrase text;
  const ProcessRecord* process = rehearsed.process();
  if (!prediction.problem.empty() && process != nullptr) {
    text += phrase("not predicted: {}\n", prediction.problem);
  }
  for (const Phrase& note : prediction.scenario.notes) text += "note: " + note + "\n";
  if (process != nullptr && process->skipped_steps() > 0) {
    text += phrase("{} steps were skipped by a loss scaler\n", process->skipped_steps());
  }
  if (process != nullptr && process->end && !process->end->unknown_functions.empty()) {
    std::string names;
    for (const std::string& name : process->end->unknown_functions) {
      names += (names.empty() ? "" : " ") + name;
    }
    text += phrase("functions of CUDA's libraries that nobody emulates were called: {}\n", names);
  }
  return text;
}

std::string unknown_values_text(const ProcessRecord& process, const Translation& words) {
  if (process.unknown_values.empty()) return "";
  std::string text = words.text(
      "these lines branch on values that nobody computed; they went on as if the values were 0:\n");
  for (const rehearsal::UnknownValue& value : process.unknown_values) {
    text += frames_text({value.frame});
    if (!value.source.empty()) text += "      " + value.source + "\n";
  }
  return "\n" + text;
}

}  // namespace

std::string rehearse_text(const Rehearsed& rehearsed,
                          const Findings& findings,
                          const Translation& words) {
  const Prediction& prediction = findings.prediction;
  std::string text = words.text(gpu_text(rehearsed)) + words.text(verdict_text(rehearsed)) +
                     words.text(error_text(rehearsed));
  if (findings.oom != nullptr) text += out_of_memory_text(*findings.oom, words);
  if (const ProcessRecord* process = rehearsed.process()) {
    text += "\n" + phases_text(*process, words);
    const bool ran = rehearsed.outcome() == Outcome::ran;
    if (ran) text += "\n" + comparison_text(rehearsed, prediction, words);
    const Phrase steps = real_steps_text(rehearsed, prediction);
    if (!steps.empty()) text += "\n" + words.text(steps);
    if (findings.time != nullptr) text += time_text(*findings.time, prediction, words);
    if (findings.work != nullptr) text += work_text(*findings.work, words);
    text += ranks_text(rehearsed, words) + unknown_values_text(*process, words);
  }
  const Phrase notes = notes_text(rehearsed, prediction);
  return text + (notes.empty() ? "" : "\n" + words.text(notes));
}

}  // namespace zeroplan::cli
