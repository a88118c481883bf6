#include "cli/remedies.hpp"

#include <algorithm>
#include <optional>

#include "base/phrase_list.hpp"
#include "cli/table.hpp"
#include "model/plan/packed_copy.hpp"
#include "model/predict/prediction_parts.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan::cli {

Phrase list_text(const char* title, const std::vector<Phrase>& lines) {
  if (lines.empty()) return "";
  Phrase text = "\n";
  text += title;
  text += ":\n";
  for (const Phrase& line : lines) text += phrase("  - {}\n", line);
  return text;
}

Phrase because_text(const Plan& plan, const StepResult& result) {
  Phrase text;
  if (const std::optional<PackedCopy> copy = packed_copy(*plan.whole_model)) {
    text += phrase(
        "  because this copy's {} weights are planned in 16 bits: packed they take about {} less\n",
        copy->format,
        gib_text(copy->in_16_bits - copy->packed));
  }
  const Phase peak = result.gpu.peak_phase;
  if (peak != Phase::forward && peak != Phase::backward) return text;
  for (const Phrase& trap : release_traps(plan)) text += phrase("  because {}\n", trap);
  return text;
}

// A need has as many digits as tell it from what there is.
static std::string gpu_need(const StepResult& result) {
  return GibPair(result.gpu.peak_total, result.gpu.capacity).needed;
}

Phrase remedy_lines(const std::vector<tuner::Remedy>& remedies) {
  Phrase text;
  for (const tuner::Remedy& remedy : remedies) {
    text += phrase("  - {}:\n    then {}, {} per GPU, {:.0f} tokens/s per GPU{}\n",
                   remedy.change,
                   describe(remedy.best.strategy),
                   gpu_need(remedy.best.result),
                   remedy.best.result.step.tokens_per_second_per_gpu,
                   condition_text(remedy.best.result));
  }
  return text;
}

Phrase tried_line(const std::vector<Phrase>& tried) {
  return tried.empty() ? "" : phrase("Tried, and not enough: {}.\n", phrase_list(tried, "; "));
}

namespace {

// Of the same work, in tokens a second.
Phrase slower_text(const StepResult& result, const StepResult& base) {
  const double speed = result.step.tokens_per_second_per_gpu / base.step.tokens_per_second_per_gpu;
  constexpr double kSame = 0.01;
  constexpr double kTimes = 2.0;
  if (speed > 1.0 - kSame && speed < 1.0 + kSame) return "as fast";
  if (speed >= kTimes) return phrase("{:.0f} times as fast", speed);
  return speed < 1.0 ? phrase("{:.0f} % slower", 100.0 * (1.0 - speed))
                     : phrase("{:.0f} % faster", 100.0 * (speed - 1.0));
}

}  // namespace

Phrase changes_text(const tuner::Remedies& changes, const StepResult& base) {
  constexpr std::size_t kMost = 4;
  Phrase text;
  for (std::size_t i = 0; i < std::min(kMost, changes.that_fit.size()); ++i) {
    const tuner::TriedRemedy& one = changes.tried[changes.that_fit[i]];
    const StepResult& result = one.outcome->result;
    if (i == 0) text += "what would make it fit, the cheapest first:\n";
    text += phrase("  - {}: GPU {}, host {}, step {}, {}{}\n",
                   one.change,
                   gpu_need(result),
                   gib_text(result.host.peak),
                   seconds_text(result.step.total),
                   slower_text(result, base),
                   condition_text(result));
  }
  if (!text.empty()) return text;
  std::vector<Phrase> tried;
  for (const tuner::TriedRemedy& one : changes.tried) tried.push_back(one.change);
  return Phrase("no change that was tried makes it fit, nor all of them together. ") +
         tried_line(tried);
}

}  // namespace zeroplan::cli
