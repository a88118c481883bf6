#include "cli/step_text.hpp"

#include <cmath>

#include <fmt/format.h>

#include "cli/table.hpp"
#include "model/plan/trainer.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan::cli {

namespace {

// "95", "99.9".
std::string percent(double confidence) { return fmt::format("{:.4g} %", confidence * 100.0); }

// "3.2 GiB more GPU memory", or nothing where the difference is below 2 %.
Phrase difference(Bytes other, Bytes best, const char* what) {
  const Bytes gap = other > best ? other - best : best - other;
  if (gap * 50 < best) return "";
  return phrase("{} ", gib_text(gap)) + (other > best ? "more " : "less ") + what;
}

}  // namespace

Phrase batch_text(const BatchSizes& sizes) {
  Phrase text = phrase("micro-batch {}", sizes.micro_batch);
  if (sizes.accumulation > 1) text.append(phrase(" x {}", sizes.accumulation));
  return text;
}

Phrase full_name(const tuner::StrategyResult& row) {
  return phrase("{}, ", describe(row.strategy)).append(batch_text(batch_of(row)));
}

Phrase comparison_text(const tuner::StrategyResult& other, const tuner::StrategyResult& best) {
  const double slower = 1.0 - tuner::comparable_speed(other) / tuner::comparable_speed(best);
  const double faster = tuner::comparable_speed(other) / tuner::comparable_speed(best) - 1.0;
  const Phrase speed = faster > 0.005   ? phrase("{:.0f} % faster", faster * 100)
                       : slower < 0.005 ? "as fast"
                                        : phrase("{:.0f} % slower", slower * 100);
  Phrase rest = difference(other.result.gpu.peak_total, best.result.gpu.peak_total, "GPU memory");
  const Phrase host = difference(other.result.host.peak, best.result.host.peak, "host memory");
  if (!rest.empty() && !host.empty()) rest += ", ";
  rest.append(host);
  if (tuner::is_at_limit(other.result)) {
    rest = rest.empty() ? "at the GPU's limit" : phrase("at the GPU's limit, {}", rest);
  }
  return rest.empty() ? speed : Phrase(speed).append(phrase(", {}", rest));
}

Phrase host_memory_text(const Plan& plan, const StepResult& result) {
  const auto [needed, there] = GibPair(result.host.peak, result.host.capacity);
  if (plan.cluster.node.host_memory.confidence != Confidence::assumed) {
    return phrase("  host memory  {} of {} per node\n", needed, there);
  }
  if (result.host_condition) {
    return phrase("  host memory  needs {} per node and a margin of {}; unspecified; usual: {}\n",
                  needed,
                  gib_text(result.host_condition->margin),
                  there);
  }
  return phrase("  host memory  needs {} per node; unspecified; usual: {}\n", needed, there);
}

Phrase host_amount_text(const Plan& plan, const StepResult& result) {
  const auto [needed, there] = GibPair(result.host.peak, result.host.capacity);
  const bool stated = plan.cluster.node.host_memory.confidence != Confidence::assumed;
  return stated ? phrase("{} of {}", needed, there)
                : phrase("{} (unspecified; usual: {})", needed, there);
}

std::string probability_text(const StepResult& result) {
  const double shown =
      result.fits ? result.fit_probability : std::floor(result.fit_probability * 1000.0) / 1000.0;
  return fixed_text(shown, 3);
}

Phrase needs_text(const Limit& limit) {
  const auto [needed, there] = GibPair(limit.needed, limit.available);
  Phrase text = limit.margin > Bytes::zero() ? phrase("needs {} and a margin of {} ({})",
                                                      needed,
                                                      gib_text(limit.margin),
                                                      percent(limit.confidence))
                                             : phrase("needs {}", needed);
  text = limit.open ? phrase("{}, such a node has at most {}", text, there)
                    : phrase("{}, has {}", text, there);
  // What the digits hide.
  if (gib_text(limit.enough()) == gib_text(limit.available) && limit.enough() > limit.available) {
    text = phrase("{}: {:.1f} MiB short",
                  text,
                  static_cast<double>((limit.enough() - limit.available).count()) / (1 << 20));
  }
  return text;
}

Phrase other_releases_text(const Plan& plan) {
  if (plan.software.conflicts.empty()) return "";
  return phrase(", with other releases ({})", plan.software.conflicts.front());
}

Phrase short_text(const StepResult& result) {
  const Limit& limit = result.limits.front();
  if (limit.pool != Limit::Pool::none) return phrase("does not fit: {}", limit.largest_term);
  const std::string what = plain_name(name(kResourceNames, limit.resource));
  return phrase("does not fit: {} {}", what, needs_text(limit));
}

Phrase lack_text(const tuner::StrategyResult& row) {
  const Limit& limit = row.result.limits.front();
  const Phrase needs = needs_text(limit);
  const std::string what = plain_name(name(kResourceNames, limit.resource));
  return row.simulated
             ? phrase("{} does not: {} {}", describe(row.strategy), what, needs)
             : phrase("{} does not, by the estimate: {} {}", describe(row.strategy), what, needs);
}

Phrase generation_text(const Plan& plan) {
  if (plan.trainer == nullptr || !plan.trainer->generates()) return "";
  return phrase(
      "  generation   of {} is not counted: seconds and tokens a second are of the training step "
      "alone, and a run takes longer\n",
      name(kTrainerKindNames, plan.trainer->kind));
}

Phrase at_limit_text(const StepResult& result) {
  constexpr double kWorthALine = 1.0;  // percent
  const double share = 100.0 * (result.step.device_memory / result.step.total);
  if (tuner::is_at_limit(result)) {
    return phrase(
        "  at limit     within the model's error of the GPU's memory; giving memory back takes "
        "{:.0f} % of a step\n",
        share);
  }
  if (share < kWorthALine) return "";
  return phrase(
      "  flushes      the allocator gives memory back to the driver in every step: {:.0f} % of its "
      "time\n",
      share);
}

Phrase headroom_text(const tuner::Headroom& headroom, const Plan& plan) {
  if (tuner::most_micro_batch(*plan.model) < tuner::kMostMicroBatch) {
    return phrase("  headroom     sequences up to {} tokens\n", headroom.longest_sequence);
  }
  return phrase("  headroom     micro-batch up to {}, or sequences up to {} tokens\n",
                headroom.largest_micro_batch,
                headroom.longest_sequence);
}

}  // namespace zeroplan::cli
