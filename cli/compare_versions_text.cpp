#include "cli/compare_versions_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "model/release_table.hpp"

namespace zeroplan {
namespace {

// Smaller effects are counted, not listed.
constexpr Bytes kWorthALine = Bytes::mib(8);
constexpr double kWorthALineOfTime = 0.001;  // of the step

std::string signed_bytes(Bytes bytes) {
  const std::int64_t count = bytes.count();
  const Bytes size = Bytes::of(std::abs(count));
  const char* sign = count < 0 ? "-" : "+";
  return size < Bytes::gib(1) / 10 ? fmt::format("{}{:.0f} MiB", sign, size / Bytes::mib(1))
                                   : fmt::format("{}{:.2f} GiB", sign, size / Bytes::gib(1));
}

// "GPU memory +1.24 GiB, step -3.1 %"; empty where nothing is large enough for a line.
std::string effect_text(
    Bytes gpu, Bytes host, Seconds step, Seconds whole_step, const Translation& words) {
  std::vector<std::string> parts;
  const auto large = [](Bytes bytes) { return std::abs(bytes.count()) >= kWorthALine.count(); };
  if (large(gpu)) parts.push_back(words.text("GPU memory") + " " + signed_bytes(gpu));
  if (large(host)) parts.push_back(words.text("host memory") + " " + signed_bytes(host));
  const double share = whole_step > Seconds::zero() ? step / whole_step : 0.0;
  if (std::abs(share) >= kWorthALineOfTime) {
    parts.push_back(words.text("step time") + fmt::format(" {:+.1f} %", 100.0 * share));
  }
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

bool runs_deepspeed(const ComparedSet& set) { return runs_deepspeed(set.plan.workload); }

std::string question_text(const ComparedSet& last,
                          const std::string& strategy,
                          const Translation& words) {
  const Plan& plan = last.plan;
  const std::string name =
      plan.whole_model->name.empty() ? plan.whole_model->architecture : plan.whole_model->name;
  std::string text =
      words.text(phrase("{} ({} parameters) on {}, {} tokens, micro-batch {} x {}",
                        name,
                        short_count_text(count_parameters(*plan.whole_model).total.count()),
                        short_name(plan.cluster),
                        plan.workload.sequence_length,
                        plan.workload.micro_batch_size,
                        plan.workload.gradient_accumulation_steps));
  if (!strategy.empty()) {
    text += "\n" +
            words.text(phrase("what fit {} under {}:",
                              last.result.fits ? "recommends" : "comes nearest with",
                              label(last.releases, runs_deepspeed(last)))) +
            " " + words.text(strategy);
  }
  return text + "\n\n";
}

std::string sets_table(const std::vector<ComparedSet>& compared, const Translation& words) {
  std::vector<std::vector<Phrase>> rows;
  for (const ComparedSet& set : compared) {
    const StepResult& result = set.result;
    rows.push_back({label(set.releases, runs_deepspeed(set)),
                    gib_number(result.gpu.peak_total),
                    gib_number(result.host.peak),
                    seconds_text(result.step.total),
                    fixed_text(result.step.tokens_per_second_per_gpu, 0),
                    result.fits ? "yes" : "no"});
  }
  return table({{runs_deepspeed(compared.back()) ? "DeepSpeed / torch / transformers"
                                                 : "torch / transformers"},
                {"GPU GiB", Align::right},
                {"host GiB", Align::right},
                {"step time", Align::right},
                {"tokens/s per GPU", Align::right},
                {"fits"}},
               rows,
               words);
}

std::string difference_text(const ReleaseEffect& effect, const Translation& words) {
  if (effect.changed) {
    return words.text(phrase("DeepSpeed: default of {} is {}, was {}",
                             pointer_of(effect.changed->knob),
                             effect.changed->newer,
                             effect.changed->older));
  }
  const ReleaseRow& row = release_row(*effect.rule);
  const std::string release = fmt::format(
      "{} {}", display_name(row.package), to_string(effect.begins ? row.since : row.until));
  // The releases are numbers; the sentence is a message of its own.
  return release + (effect.begins ? ": " : words.text(", no longer:") + " ") +
         words.text(std::string(row.does));
}

std::string neighbours_text(const ComparedSet& older,
                            const ComparedSet& newer,
                            const Translation& words) {
  const StepResult& before = older.result;
  const StepResult& after = newer.result;
  const bool deepspeed = runs_deepspeed(newer);
  const std::string change = effect_text(after.gpu.peak_total - before.gpu.peak_total,
                                         after.host.peak - before.host.peak,
                                         after.step.total - before.step.total,
                                         before.step.total,
                                         words);
  std::string text = "\n" + label(older.releases, deepspeed) + "  ->  " +
                     label(newer.releases, deepspeed) + ": " +
                     (change.empty() ? words.text("the same") : change) + "\n";
  std::size_t small = 0;
  for (const ReleaseEffect& effect : newer.effects) {
    const std::string does = effect_text(
        effect.gpu_memory, effect.host_memory, effect.step_time, after.step.total, words);
    if (does.empty()) {
      ++small;
      continue;
    }
    text += "  " + difference_text(effect, words) + " (" + does + ")\n";
  }
  const std::size_t none = newer.differences - newer.effects.size();
  if (small > 0) {
    text += "  " + words.text(phrase("{} more below 8 MiB and 0.1 %", small)) + "\n";
  }
  const Phrase others = none == 1 ? phrase("{} known difference does nothing here", none)
                                  : phrase("{} known differences do nothing here", none);
  return text + "  " + words.text(others) + "\n";
}

// Those that not every set has: what does not go together, what a release gets wrong.
std::string warnings_text(const std::vector<ComparedSet>& compared, const Translation& words) {
  std::string text;
  for (const ComparedSet& set : compared) {
    for (const Phrase& warning : set.plan.warnings) {
      const bool everywhere =
          std::all_of(compared.begin(), compared.end(), [&](const ComparedSet& other) {
            const auto& list = other.plan.warnings;
            return std::find(list.begin(), list.end(), warning) != list.end();
          });
      if (everywhere) continue;
      text += "  " + label(set.releases, runs_deepspeed(set)) + ": " + words.text(warning) + "\n";
    }
  }
  return text.empty() ? text : "\n" + words.text("Warnings:") + "\n" + text;
}

}  // namespace

std::string compare_versions_text(const ComparedVersions& answer,
                                  const std::string& strategy,
                                  const Translation& words) {
  const std::vector<ComparedSet>& compared = answer.sets;
  std::string text = question_text(compared.back(), strategy, words) + sets_table(compared, words);
  for (std::size_t i = 1; i < compared.size(); ++i) {
    text += neighbours_text(compared[i - 1], compared[i], words);
  }
  text += warnings_text(compared, words);
  if (!answer.missing.empty()) text += "\n" + words.text(answer.missing) + "\n";
  return text + "\n" +
         words.text(
             "Each line is one difference alone, taken back on the newer set; together they "
             "need not add up.") +
         "\n";
}

}  // namespace zeroplan
