#include "cli/simulate_text.hpp"

#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "base/phrase_list.hpp"
#include "cli/checkpoint_text.hpp"
#include "cli/cost_options.hpp"
#include "cli/remedies.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "model/predict/run_phases.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan::cli {
namespace {

Phrase run_phases_text(const RunPhases& run) {
  Phrase text;
  for (const ModelShare& model : run.models) {
    const std::string seconds = model.forward ? seconds_text(*model.forward) : "-";
    text += phrase("{}: {} on each GPU, {} on each host; a forward pass {}\n",
                   name(kModelRoleNames, model.role),
                   gib_text(model.gpu),
                   gib_text(model.host),
                   seconds);
  }
  for (std::size_t i = 0; i < run.phases.size(); ++i) {
    const RunPhase& phase = run.phases[i];
    const Phrase kind = plain_name(name(kRunPhaseKindNames, phase.kind));
    const Phrase what = phase.of.empty() ? kind : phrase("{} ({})", kind, phase.of);
    text += phrase("phase {}: {} allocated{}\n",
                   what,
                   gib_text(phase.allocated),
                   i == run.peak && run.phases.size() > 1 ? ", the most" : "");
    for (const PhasePart& part : phase.parts) {
      text += phrase("  {}: {}\n", part.name, gib_text(part.bytes));
    }
    if (phase.host > Bytes::zero()) {
      text += phrase("  logits of all samples in every process: {} of each host\n",
                     gib_text(phase.host));
    }
  }
  if (!run.choices.empty()) text += "less memory on each GPU:\n";
  for (const MemoryChoice& choice : run.choices) {
    const Phrase cost =
        choice.costs ? phrase("{} more a step", seconds_text(*choice.costs)) : "time not known";
    text += phrase("  {}: {} less, {}\n", choice.what, gib_text(choice.freed), cost);
  }
  return text;
}

}  // namespace

Phrase limit_text(const Limit& limit) {
  if (limit.pool != Limit::Pool::none) return phrase("  {}\n", limit.largest_term);
  return phrase("  {}: {}; largest part: {}\n",
                plain_name(name(kResourceNames, limit.resource)),
                needs_text(limit),
                limit.largest_term.with_values(plain_name));
}

namespace {

Phrase verdict_text(const Plan& plan, const StepResult& result, const tuner::Remedies& remedies) {
  Phrase text =
      phrase("{}{}: probability {}\n",
             result.fits ? "fits" : "does not fit",
             (result.fits ? other_releases_text(plan) : Phrase()) + condition_text(result),
             probability_text(result));
  if (result.host_condition) {
    text += phrase("  with the usual {}: probability {:.3f}\n",
                   gib_text(result.host.capacity),
                   result.host_condition->usual_probability);
  }
  if (result.fits) return text;
  for (const Limit& limit : result.limits) {
    text += limit_text(limit);
    // Of a pool of buffers, which no remedy changes.
    if (limit.pool != Limit::Pool::none && !limit.cheapest_change.empty())
      text += phrase("  cheapest change: {}\n", limit.cheapest_change);
  }
  return text + because_text(plan, result) + changes_text(remedies, result);
}

// What a full GPU costs: the allocator gives memory back to the driver and takes it again.
Phrase limit_lines(const StepResult& result) {
  Phrase text;
  if (result.fits && tuner::is_at_limit(result)) {
    text += "at the GPU's limit: within the model's error of its memory\n";
  }
  if (result.gpu.allocator_flushes > 0) {
    text += phrase(
        "the allocator gives memory back to the driver: {} flushes in the simulated steps, {:.1f} "
        "% "
        "of a step's time\n",
        result.gpu.allocator_flushes,
        100.0 * (result.step.device_memory / result.step.total));
  }
  return text;
}

// Categories down, phases across; the last column is the breakdown at the peak.
std::string memory_text(const GpuMemory& gpu, const Translation& words) {
  std::vector<Column> columns = {{"GPU memory, GiB"}};
  for (const std::string_view phase : kPhaseNames.names) {
    columns.push_back({std::string(phase), Align::right});
  }
  columns.push_back({"at the peak", Align::right});
  std::vector<std::vector<Phrase>> rows;
  for (std::size_t category = 0; category < kMemoryCategoryCount; ++category) {
    std::vector<Phrase> row = {plain_name(kMemoryCategoryNames[category])};
    for (const CategoryBytes& phase : gpu.by_phase)
      row.push_back(fixed_text(phase[category].gib(), 2));
    row.push_back(fixed_text(gpu.breakdown_at_peak[category].gib(), 2));
    rows.push_back(row);
  }
  std::vector<Phrase> totals = {"sum"};
  for (const CategoryBytes& phase : gpu.by_phase) totals.push_back(fixed_text(sum(phase).gib(), 2));
  totals.push_back(fixed_text(sum(gpu.breakdown_at_peak).gib(), 2));
  rows.push_back(totals);
  return table(columns, rows, words);
}

Phrase time_text(const StepTime& step) {
  return phrase(
      "step {} = forward {} + backward {} + optimizer {}\n"
      "  exposed communication {}, exposed offload {}, bound by {}\n"
      "  {:.0f} tokens/s per GPU, {:.2f} samples/s, {:.1f} TFLOP/s per GPU, MFU {}\n",
      seconds_text(step.total),
      seconds_text(step.forward),
      seconds_text(step.backward),
      seconds_text(step.optimizer),
      seconds_text(step.exposed_communication),
      seconds_text(step.exposed_offload),
      plain_name(name(kBoundNames, step.bound)),
      step.tokens_per_second_per_gpu,
      step.samples_per_second,
      step.model_flops_per_gpu.value() / 1e12,
      percent_text(step.mfu));
}

// Steps and time of the whole run.
Phrase job_text(const JobTime& job) {
  Phrase text = phrase("{} steps, {}; sequences padded to {:.0f} tokens on average",
                       job.steps,
                       hours_text(job.seconds().seconds() / 3600.0),
                       job.padded_length);
  if (job.padding_share) {
    text.append(phrase(", {:.0f} % of them padding", 100.0 * *job.padding_share));
  }
  return text;
}

// Shares: of the samples those longer than the sequence, of the job's time each part that has one.
Phrase job_shares_text(const JobTime& job) {
  constexpr double kShown = 0.05;  // in percent
  std::vector<Phrase> parts;
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    const double percent = 100.0 * (job.parts[i] / job.seconds());
    if (percent < kShown) continue;
    parts.push_back(phrase("{:.1f} % {}", percent, kJobPartNames.names[i]));
  }
  const Phrase time = phrase_list(parts);
  if (job.longer_share.value_or(0.0) <= 0.0) return phrase("of its time {}", time);
  const double percent = 100.0 * *job.longer_share;
  return job.drops_longer
             ? phrase(
                   "{:.1f} % of the samples are longer than the sequence and left out; of its "
                   "time {}",
                   percent,
                   time)
             : phrase(
                   "{:.1f} % of the samples are longer than the sequence and cut; of its time {}",
                   percent,
                   time);
}

}  // namespace

Phrase job_lines(const std::optional<JobTime>& job) {
  if (!job) return "";
  return phrase("  job          {}\n               {}\n", job_text(*job), job_shares_text(*job));
}

std::string simulate_text(const Plan& plan,
                          const StepResult& result,
                          const tuner::Remedies& remedies,
                          const std::optional<CheckpointPrediction>& checkpoint,
                          const Translation& words) {
  const GpuMemory& gpu = result.gpu;
  const GibPair shown(gpu.peak_total, gpu.capacity);
  Phrase verdict = verdict_text(plan, result, remedies);
  verdict +=
      phrase("GPU: {} allocated, {} reserved, {} in all of {}; {} between steps; peak in {}\n",
             gib_text(gpu.peak_allocated),
             gib_text(gpu.peak_reserved),
             shown.needed,
             shown.there,
             gib_text(gpu.static_allocated),
             name(kPhaseNames, gpu.peak_phase));
  verdict += phrase("host: {} per node ({} pinned, {} while loading)\n",
                    host_amount_text(plan, result),
                    gib_text(result.host.pinned),
                    gib_text(result.host.load_peak));
  verdict += limit_lines(result);
  for (const Phrase& sentence : result.warnings) verdict += "warning: " + sentence + "\n";
  verdict += "\n";
  const std::string text = words.text(verdict) + memory_text(gpu, words) + "\n";
  Phrase rest = generation_text(plan) + time_text(result.step);
  if (result.job) {
    rest += "job: " + job_text(*result.job) + "\n";
    rest += "  " + job_shares_text(*result.job) + "\n";
  }
  if (const auto run = run_phases(plan, result)) rest += run_phases_text(*run);
  if (checkpoint) rest += checkpoint_text(*checkpoint);
  for (const Phrase& sentence : result.assumptions) rest += "assumed: " + sentence + "\n";
  return text + words.text(rest);
}

}  // namespace zeroplan::cli
