#include "cli/explain_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/diagnostic.hpp"
#include "base/phrase_list.hpp"
#include "cli/remedies.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "model/predict/verdict.hpp"
#include "simulator/allocator_options.hpp"

namespace zeroplan::cli {
namespace {

std::string signed_gib(std::int64_t bytes) {
  const double gib = static_cast<double>(bytes) / (1 << 30);
  if (std::abs(gib) < 0.005) return "-";
  return fmt::format("{:+.2f}", gib);
}

std::string signed_share(double ratio) {
  if (std::abs(ratio) < 0.0005) return "-";
  return fmt::format("{:+.1f} %", ratio * 100.0);
}

Phrase run_line(const Plan& plan) {
  const Cluster& cluster = plan.cluster;
  return phrase("{} on {} x {} {}, {}, {} tokens x {} sequences a GPU",
                plan.whole_model->name,
                cluster.nodes,
                cluster.gpus_per_node(),
                cluster.gpu.name,
                runs_deepspeed(plan.workload)
                    ? "ZeRO-" + std::to_string(plan.engine.stage)
                    : std::string(name(kTrainingEngineNames, plan.workload.engine)),
                plan.workload.sequence_length,
                plan.workload.micro_batch_size);
}

Phrase verdict_line(const Plan& plan, const StepResult& result) {
  const GpuMemory& gpu = result.gpu;
  const GibPair shown(gpu.peak_total, gpu.capacity);
  return phrase("{}{}: GPU {} of {} (peak in {}), host {} (peak in {}), step {}\n",
                result.fits ? "fits" : "does not fit",
                condition_text(result),
                shown.needed,
                shown.there,
                name(kPhaseNames, gpu.peak_phase),
                host_amount_text(plan, result),
                name(kPhaseNames, result.host.peak_phase),
                seconds_text(result.step.total));
}

// --- what uses the memory

Phrase sort_text(const tuner::TensorSort& sort) {
  return sort.name.empty() ? sort.what : phrase("{} ({})", sort.what, sort.name);
}

using Rows = std::vector<std::vector<Phrase>>;

// The largest sorts of a category; the rest in one row.
void add_sorts(const std::vector<tuner::HeldSort>& held, MemoryCategory category, Rows& rows) {
  constexpr std::size_t kShown = 5;
  std::vector<const tuner::HeldSort*> sorts;
  for (const tuner::HeldSort& one : held) {
    if (one.category == category) sorts.push_back(&one);
  }
  for (std::size_t i = 0; i < std::min(kShown, sorts.size()); ++i) {
    const tuner::HeldSort& one = *sorts[i];
    // Knobs that move all of a category stand once, at its largest sort.
    const bool repeats = i > 0 && one.sort.knobs == sorts[i - 1]->sort.knobs;
    rows.push_back({phrase("  {}", sort_text(one.sort)),
                    fixed_text(one.bytes.gib(), 2),
                    count_text(one.count),
                    repeats ? "" : phrase_list(one.sort.knobs)});
  }
  if (sorts.size() <= kShown) return;
  Bytes rest;
  std::int64_t count = 0;
  for (std::size_t i = kShown; i < sorts.size(); ++i) {
    rest += sorts[i]->bytes;
    count += sorts[i]->count;
  }
  rows.push_back({phrase("  {} more sorts", sorts.size() - kShown),
                  fixed_text(rest.gib(), 2),
                  count_text(count),
                  ""});
}

std::string peak_text(const StepResult& result,
                      const std::optional<tuner::PeakInventory>& peak,
                      const Translation& words) {
  Rows rows;
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    const Bytes bytes = result.gpu.breakdown_at_peak[i];
    if (bytes == Bytes::zero()) continue;
    rows.push_back({plain_name(kMemoryCategoryNames[i]), fixed_text(bytes.gib(), 2), "", ""});
    if (peak) add_sorts(peak->held, static_cast<MemoryCategory>(i), rows);
  }
  rows.push_back({"sum", fixed_text(result.gpu.peak_total.gib(), 2), "", ""});
  return words.text(phrase("what uses the GPU's memory at the peak, in {}:\n",
                           name(kPhaseNames, result.gpu.peak_phase))) +
         table({{"what"}, {"GiB", Align::right}, {"tensors", Align::right}, {"moved by"}},
               rows,
               words);
}

// --- what moves it

std::string movers_text(const ConfigExplanation& explanation,
                        tuner::Measure measure,
                        std::string_view title,
                        const Translation& words) {
  constexpr std::size_t kMost = 8;
  const tuner::Sensitivity& all = explanation.sensitivity;
  const std::vector<std::size_t> movers = tuner::largest_movers(all, measure, kMost);
  if (movers.empty()) return words.text(phrase("{}: nothing moves it by a percent\n", title));
  Rows rows;
  for (const std::size_t i : movers) {
    const tuner::Move& move = all.moves[i];
    rows.push_back({describe(move.variation, explanation.plan),
                    signed_gib(tuner::added_gpu_bytes(all, move)),
                    signed_gib(tuner::added_host_bytes(all, move)),
                    signed_share(tuner::added_seconds(all, move) / all.base.step.total.seconds()),
                    move.result.fits ? "yes" : "no"});
  }
  return words.text(phrase("{}:\n", title)) + table({{"change"},
                                                     {"GPU, GiB", Align::right},
                                                     {"host, GiB", Align::right},
                                                     {"step time", Align::right},
                                                     {"fits"}},
                                                    rows,
                                                    words);
}

// --- an error

Phrase size_line(const char* label, const std::optional<evidence::PrintedSize>& size) {
  return size ? Phrase(label) + evidence::printed(size->bytes) : "";
}

Phrase event_line(const evidence::OomEvent& event) {
  Phrase what = plain_name(name(evidence::kOomKindNames, event.kind));
  if (event.gpu) what = phrase("{} of GPU {}", what, *event.gpu);
  Phrase numbers;
  for (const Phrase& part : {size_line("asked for ", event.tried),
                             size_line("GPU ", event.capacity),
                             size_line("free ", event.free),
                             size_line("allocated ", event.allocated),
                             size_line("reserved and unallocated ", event.reserved_unallocated),
                             size_line("reserved ", event.reserved),
                             size_line("this process ", event.process)}) {
    if (!part.empty()) numbers = numbers.empty() ? part : phrase("{}, {}", numbers, part);
  }
  if (!numbers.empty()) what = phrase("{}: {}", what, numbers);
  if (event.rank) what = phrase("rank {}: {}", *event.rank, what);
  return phrase("line {}: {}", event.line, what);
}

Phrase events_text(const OomExplanation& explanation) {
  Phrase text = phrase("{}\n", event_line(explanation.events[explanation.explained]));
  const std::size_t others = explanation.events.size() - 1;
  constexpr std::size_t kShown = 3;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < explanation.events.size() && shown < kShown; ++i) {
    if (i == explanation.explained) continue;
    text += phrase("also {}\n", event_line(explanation.events[i]));
    ++shown;
  }
  if (others > shown) text += phrase("and {} more\n", others - shown);
  return text;
}

// Small segments are shared by tensors of many sizes (allocator_options.hpp).
Phrase shared_segment_note(const evidence::OomEvent& event) {
  if (!event.tried) return "";
  if (event.tried->bytes == simulator::kSmallBuffer) {
    return "2.00 MiB is what PyTorch asks for any tensor of up to 1 MiB: the size tells nothing "
           "more; the GPU was full\n";
  }
  if (event.tried->bytes == simulator::kLargeBuffer) {
    return "20.00 MiB is what PyTorch asks for any tensor of 1 to 10 MiB: the size tells little\n";
  }
  return "";
}

Phrase off_text(double off) {
  return off < 0.0 ? phrase("{:.1f} % less than was asked for", -off * 100.0)
                   : phrase("{:.1f} % more than was asked for", off * 100.0);
}

std::string matches_text(const OomRun& run, const Translation& words) {
  constexpr std::size_t kMost = 5;
  if (run.matches.empty()) {
    return words.text(
        "no allocation of the simulated run asks for that size, nor for one within 2 %: is the "
        "scenario the one that failed?\n");
  }
  const bool near = run.matches.front().off != 0.0;
  Rows rows;
  for (std::size_t i = 0; i < std::min(kMost, run.matches.size()); ++i) {
    const tuner::SizeMatch& match = run.matches[i];
    rows.push_back({near ? phrase("{}, {}", sort_text(match.sort), off_text(match.off))
                         : sort_text(match.sort),
                    std::string(name(kPhaseNames, match.phase)),
                    plain_name(name(match.category)),
                    gib_text(match.allocated_before),
                    match.place,
                    phrase_list(match.sort.knobs)});
  }
  std::string text =
      words.text(near ? "no allocation of the simulated run has that size; within 2 %, the nearest "
                        "first:\n"
                      : "allocations of the simulated run with that size, the likeliest first:\n") +
      table({{"what"},
             {"phase"},
             {"category"},
             {"allocated then", Align::right},
             {"where"},
             {"moved by"}},
            rows,
            words);
  if (run.matches.size() > kMost) {
    text += words.text(phrase("and {} more sorts of tensors\n", run.matches.size() - kMost));
  }
  return text;
}

Phrase facts_text(const std::vector<tuner::SizeFact>& facts) {
  constexpr std::size_t kMost = 6;
  Phrase text;
  for (std::size_t i = 0; i < std::min(kMost, facts.size()); ++i) {
    const tuner::SizeFact& fact = facts[i];
    text += fact.off == 0.0
                ? phrase("of that size: {} = {}\n", fact.what, fact.arithmetic)
                : phrase("nearest: {} = {}, {}\n", fact.what, fact.arithmetic, off_text(fact.off));
  }
  if (facts.size() > kMost) text += phrase("and {} more\n", facts.size() - kMost);
  return text;
}

Phrase end_text(const OomRun& run) {
  if (!run.end && !run.result.fits) {
    return "simulated on this GPU the run has no sure room: what is predicted is above or close "
           "to "
           "what the GPU has\n";
  }
  if (!run.end) {
    return "simulated on this GPU the run does not run out of memory: look for what differs "
           "(longer sequences, other versions, memory of others)\n";
  }
  return phrase("simulated on this GPU the run ends in {}{}, over {} of {}\n",
                name(kPhaseNames, run.end->end.phase),
                run.end->label.empty() ? "" : phrase(" at {}", run.end->label),
                gib_text(run.end->end.numbers.requested),
                plain_name(name(run.end->end.category)));
}

Phrase symptoms_text(const std::vector<evidence::LogSymptom>& symptoms) {
  Phrase text;
  for (const evidence::LogSymptom& symptom : symptoms) {
    text +=
        phrase("line {}: {}\n", symptom.line, phrase("cause: {} [{}]", symptom.text, symptom.code));
    if (!symptom.check.empty()) text += phrase("  check: {}\n", symptom.check);
    text += phrase("  advice: {}\n", symptom.advice);
  }
  return text;
}

// Of the first traceback: the place that is deepest in it says most.
Phrase places_text(const std::vector<evidence::LogSymptom>& places) {
  Phrase text;
  for (const evidence::LogSymptom& place : places) {
    text += phrase("line {}: {} [{}]\n", place.line, place.text, place.code);
    text += phrase("  advice: {}\n", place.advice);
  }
  return text;
}

bool is_healthy(const evidence::LogReading& log) {
  return std::all_of(
      log.consequences.begin(), log.consequences.end(), [](const evidence::LogSymptom& symptom) {
        return symptom.kind == evidence::FailureKind::note;
      });
}

bool on_gpu(const evidence::OomEvent& event) {
  return !evidence::is_of_host(event.kind) && event.kind != evidence::OomKind::shared_memory;
}

std::string phases_text(const GpuMemory& gpu, const Translation& words) {
  std::vector<Column> columns = {{"in use without a limit, GiB"}};
  for (const std::string_view phase : kPhaseNames.names) {
    columns.push_back({std::string(phase), Align::right});
  }
  Rows rows;
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    const bool any =
        std::any_of(gpu.by_phase.begin(), gpu.by_phase.end(), [&](const CategoryBytes& phase) {
          return phase[i] > Bytes::zero();
        });
    if (!any) continue;
    std::vector<Phrase> row = {plain_name(kMemoryCategoryNames[i])};
    for (const CategoryBytes& phase : gpu.by_phase) row.push_back(fixed_text(phase[i].gib(), 2));
    rows.push_back(row);
  }
  return table(columns, rows, words);
}

}  // namespace

Phrase causes_text(const std::vector<evidence::OomCause>& causes) {
  Phrase text;
  for (const evidence::OomCause& cause : causes) {
    text += phrase("cause: {} [{}]\n", cause.text, cause.code);
    if (!cause.advice.empty()) text += phrase("  advice: {}\n", cause.advice);
  }
  return text;
}

std::string explain_text(const ConfigExplanation& explanation, const Translation& words) {
  const StepResult& base = explanation.sensitivity.base;
  std::string text =
      printable(explanation.file) + ": " +
      words.text(
          phrase("{}\n{}", run_line(explanation.plan), verdict_line(explanation.plan, base)));
  text += "\n" + peak_text(base, explanation.peak, words) + "\n";
  text +=
      movers_text(explanation, tuner::Measure::gpu_memory, "what moves GPU memory most", words) +
      "\n";
  text +=
      movers_text(explanation, tuner::Measure::host_memory, "what moves host memory most", words) +
      "\n";
  text +=
      movers_text(explanation, tuner::Measure::step_time, "what moves the step's time most", words);
  Phrase rest;
  for (const tuner::RefusedMove& move : explanation.sensitivity.refused) {
    rest += phrase("not possible: {}\n", describe(move.variation, explanation.plan));
  }
  for (const Phrase& sentence : base.assumptions) {
    rest += "assumed: " + sentence + "\n";
  }
  for (const Phrase& sentence : base.warnings) rest += "warning: " + sentence + "\n";
  return text + words.text(rest);
}

std::string explain_text(const SymptomExplanation& explanation, const Translation& words) {
  const evidence::LogReading& log = explanation.log;
  Phrase text;
  if (!log.failures.empty()) {
    text = symptoms_text(log.failures);
  } else {
    if (log.unknown) {
      text = phrase("line {}: {}: this error is not known\n", log.unknown->line, log.unknown->text);
    } else if (log.consequences.empty()) {
      text = phrase("lines read: {}; none tells of a failure that is known\n", log.lines);
    } else if (is_healthy(log)) {
      text = phrase("lines read: {}; none tells of a failure\n", log.lines);
    }
    text += symptoms_text(log.consequences);
    text +=
        "needed: of the rank that failed first, the lines from its first \"Traceback\" to the "
        "error's last line and some 20 before it; for NCCL a run with NCCL_DEBUG=INFO; for an "
        "operator that does not build the lines from the first \"error:\" on\n";
  }
  return printable(explanation.file) + ": " + words.text(text);
}

std::string explain_text(const OomExplanation& explanation, const Translation& words) {
  const evidence::OomEvent& event = explanation.events[explanation.explained];
  std::string text =
      printable(explanation.file) + ": " +
      words.text(events_text(explanation) + causes_text(explanation.causes) +
                 places_text(explanation.log.places) + symptoms_text(explanation.log.failures) +
                 shared_segment_note(event) + facts_text(explanation.facts));
  if (!explanation.run) {
    return text + words.text(phrase("with {} (and --ds-config, --seq, --mbs) explain names the "
                                    "tensor and the smallest change that fits\n",
                                    explanation.missing));
  }
  const OomRun& run = *explanation.run;
  text +=
      "\n" + words.text(phrase("{}\n{}", run_line(run.plan), verdict_line(run.plan, run.result)));
  if (event.tried) text += matches_text(run, words);
  if (on_gpu(event)) {
    text += words.text(end_text(run)) + "\n" + phases_text(run.result.gpu, words) + "\n";
  }
  Phrase rest;
  if (run.refuted_by) {
    rest = phrase(
        "the log refutes the prediction, which fits: the run takes at least {} more than is "
        "predicted, and the changes below free that much\n",
        gib_text(*run.refuted_by));
  }
  if (run.host_ran_out) {
    rest += phrase(
        "the log shows that the host ran out: a node has less than that, and the changes below are "
        "counted with the usual {} (--host-memory says another amount)\n",
        gib_text(run.result.host.capacity));
  }
  rest += run.result.fits && !run.refuted_by && !run.host_ran_out
              ? "the scenario fits with the probability asked for: no change is searched for\n"
              : changes_text(run.changes, run.result);
  for (const Phrase& sentence : run.result.assumptions) rest += "assumed: " + sentence + "\n";
  return text + words.text(rest);
}

}  // namespace zeroplan::cli
