#include "cli/fit_text.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cli/remedies.hpp"
#include "cli/simulate_text.hpp"
#include "cli/table.hpp"
#include "model/hardware/cluster.hpp"
#include "tuner/kit/trainer_line.hpp"

namespace zeroplan {
namespace {

std::string question_line(const Plan& plan) {
  return fmt::format(
      "{} ({} parameters) on {}, {} tokens, micro-batch {}, {}",
      plan.whole_model->name.empty() ? plan.whole_model->architecture : plan.whole_model->name,
      short_count_text(count_parameters(*plan.whole_model).total.count()),
      short_name(plan.cluster),
      plan.workload.sequence_length,
      plan.workload.micro_batch_size,
      name(kPrecisionNames, plan.workload.precision));
}

std::string largest_part(const GpuMemory& gpu) {
  const auto largest = std::max_element(gpu.breakdown_at_peak.begin(), gpu.breakdown_at_peak.end());
  const auto category =
      static_cast<std::size_t>(std::distance(gpu.breakdown_at_peak.begin(), largest));
  return plain_name(kMemoryCategoryNames[category]) + " " + gib_text(*largest);
}

const char* if_assumed(Confidence confidence) {
  return confidence == Confidence::assumed ? " (assumed)" : "";
}

std::string yes_text(const StrategyResult& best) {
  const StepResult& result = best.result;
  const Node& node = best.plan.cluster.node;
  std::string text = fmt::format(
      "yes: {}\n"
      "  GPU memory   {} of {} at the peak, which is in {}; largest part: {}\n"
      "  host memory  {} of {}{} per node\n"
      "  speed        {} a step, {:.0f} tokens/s per GPU, {:.0f} % of the GPU's peak, bound by {}\n"
      "  probability  {:.3f} that it fits\n",
      describe(best.strategy),
      gib_text(result.gpu.peak_total),
      gib_text(result.gpu.capacity),
      name(kPhaseNames, result.gpu.peak_phase),
      largest_part(result.gpu),
      gib_text(result.host.peak),
      gib_text(result.host.capacity),
      if_assumed(node.host_memory.confidence),
      seconds_text(result.step.total),
      result.step.tokens_per_second_per_gpu,
      result.step.mfu * 100.0,
      plain_name(name(kBoundNames, result.step.bound)),
      result.fit_probability);
  if (result.nvme > Bytes::zero() && node.nvme) {
    text += fmt::format("  NVMe         {} of {}{} per node\n",
                        gib_text(result.nvme),
                        gib_text(node.nvme->capacity.value),
                        if_assumed(node.nvme->capacity.confidence));
  }
  return text;
}

// "more by 3.2 GiB" as a clause, or nothing where the difference is below 2 %.
std::string difference(Bytes other, Bytes best, std::string_view what) {
  const Bytes gap = other > best ? other - best : best - other;
  if (gap * 50 < best) return "";
  return fmt::format(", {} {} {}", gib_text(gap), other > best ? "more" : "less", what);
}

std::string runner_up_line(const StrategyResult& other, const StrategyResult& best) {
  const double slower = 1.0 - other.result.step.tokens_per_second_per_gpu /
                                  best.result.step.tokens_per_second_per_gpu;
  const std::string speed =
      slower < 0.005 ? "as fast" : fmt::format("{:.0f} % slower", slower * 100);
  return fmt::format(
      "  - {}: {}{}{}\n",
      describe(other.strategy),
      speed,
      difference(other.result.gpu.peak_total, best.result.gpu.peak_total, "GPU memory"),
      difference(other.result.host.peak, best.result.host.peak, "host memory"));
}

std::string runners_up_text(const FitAnswer& answer) {
  if (answer.runners_up.empty()) return "\nNothing else fits.\n";
  std::string text = "\nNext best:\n";
  for (const std::size_t index : answer.runners_up) {
    text += runner_up_line(answer.strategies[index], answer.strategies[*answer.recommended]);
  }
  return text;
}

// A faster strategy that only the spread of an assumed host memory keeps from fitting: saying how
// much there is decides. The most probable of them.
std::string undecided_text(const FitAnswer& answer) {
  const StrategyResult& best = answer.strategies[*answer.recommended];
  if (best.plan.cluster.node.host_memory.confidence != Confidence::assumed) return "";
  const StrategyResult* found = nullptr;
  for (const StrategyResult& other : answer.strategies) {
    const StepResult& result = other.result;
    const bool host_alone =
        result.limits.size() == 1 && result.limits.front().resource == Resource::host_memory;
    const double speed = result.step.tokens_per_second_per_gpu;
    const bool faster = speed > 1.1 * best.result.step.tokens_per_second_per_gpu;
    if (result.fits || !host_alone || !faster || result.fit_probability < 0.5) continue;
    if (found == nullptr || result.fit_probability > found->result.fit_probability) found = &other;
  }
  if (found == nullptr) return "";
  return fmt::format(
      "\nFaster, if the host memory is what was assumed (say it with --host-memory):\n"
      "  - {}: {:.0f} tokens/s per GPU, {} of host memory, probability {:.2f}\n",
      describe(found->strategy),
      found->result.step.tokens_per_second_per_gpu,
      gib_text(found->result.host.peak),
      found->result.fit_probability);
}

// The strategy that comes nearest, and what it lacks.
const StrategyResult& nearest(const FitAnswer& answer) {
  const StrategyResult* best = &answer.strategies.front();
  for (const StrategyResult& candidate : answer.strategies) {
    const bool more_likely = candidate.result.fit_probability > best->result.fit_probability;
    const bool as_likely = candidate.result.fit_probability == best->result.fit_probability;
    if (more_likely ||
        (as_likely && candidate.result.gpu.peak_total < best->result.gpu.peak_total)) {
      best = &candidate;
    }
  }
  return *best;
}

std::string no_text(const FitAnswer& answer) {
  const StrategyResult& best = nearest(answer);
  std::string text = "no: no strategy fits; the nearest is " + describe(best.strategy) + "\n";
  for (const Limit& limit : best.result.limits) {
    text += limit_text(limit);
  }
  return text;
}

std::string remedies_text(const FitAnswer& answer) {
  if (answer.remedies.empty()) {
    return "\nNo single change makes it fit. Tried: full checkpointing, micro-batches down to 1, "
           "16-bit training,\nshorter sequences, offload without pinned memory and in small "
           "sub-groups, more host memory, up to 64\ntimes the nodes. It takes several of these "
           "together, or a smaller model.\n";
  }
  std::string text = "\nWhat would make it fit, cheapest first:\n";
  text += remedy_lines(answer.remedies);
  return text;
}

// What a strategy lacks; empty where it fits.
std::string short_of(const StepResult& result) {
  constexpr EnumNames<Resource, 4> kShort{{"GPU", "host", "NVMe", "time"}};
  std::string text;
  if (result.fits) return text;
  for (const Limit& limit : result.limits) {
    text += (text.empty() ? "" : ", ") + std::string(name(kShort, limit.resource));
  }
  return text;
}

std::string strategies_text(const FitAnswer& answer, const Translation& words) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < answer.strategies.size(); ++i) {
    const StrategyResult& row = answer.strategies[i];
    const StepResult& result = row.result;
    rows.push_back({answer.recommended == i ? "*" : "",
                    std::to_string(row.strategy.stage),
                    std::string(name(row.strategy.offload_optimizer)),
                    std::string(name(row.strategy.offload_parameter)),
                    std::string(name(kActivationCheckpointingNames, row.strategy.checkpointing)),
                    result.fits ? "yes" : "no",
                    fixed_text(result.fit_probability, 2),
                    gib_number(result.gpu.peak_total),
                    gib_number(result.host.peak),
                    fixed_text(result.step.tokens_per_second_per_gpu, 0),
                    short_of(result)});
  }
  return "\n" + table({{""},
                       {"ZeRO", Align::right},
                       {"optimizer"},
                       {"parameters"},
                       {"checkpointing"},
                       {"fits"},
                       {"prob.", Align::right},
                       {"GPU GiB", Align::right},
                       {"host GiB", Align::right},
                       {"tokens/s/GPU", Align::right},
                       {"short of"}},
                      rows,
                      words);
}

std::string headroom_text(const FitAnswer& answer, const StrategyResult& best) {
  std::string text =
      fmt::format("  headroom     micro-batch up to {}, or sequences up to {} tokens\n",
                  answer.headroom->largest_micro_batch,
                  answer.headroom->longest_sequence);
  if (best.result.at_network.empty()) return text;
  text += "  network      assumed (--network); tokens/s per GPU at";
  for (const NetworkAlternative& alternative : best.result.at_network) {
    text += fmt::format(" {:.0f} Gb/s: {:.0f}{}",
                        alternative.gigabits_per_second,
                        alternative.tokens_per_second_per_gpu,
                        &alternative == &best.result.at_network.back() ? "\n" : ",");
  }
  return text;
}

}  // namespace

std::string fit_text(const FitAnswer& answer, const Translation& words) {
  const Plan& plan = answer.strategies.front().plan;
  std::string text = words.text(question_line(plan) + "\n");
  if (answer.recommended) {
    const StrategyResult& best = answer.strategies[*answer.recommended];
    std::string about = yes_text(best);
    if (best.result.job_steps > 0) about += "  job          " + job_text(best.result) + "\n";
    about += headroom_text(answer, best) + runners_up_text(answer) + undecided_text(answer);
    text += words.text(about) + strategies_text(answer, words);
    text += "\nds_config.json:\n" + emit(written_ds_config(best.plan)).dump(2) + "\n";
    text += words.text(trainer_lines(best.plan) + list_text("Assumed", best.plan.assumptions) +
                       list_text("Warnings", best.result.warnings));
  } else {
    const StrategyResult& best = nearest(answer);
    text += words.text(no_text(answer)) + strategies_text(answer, words);
    text += words.text(remedies_text(answer) + list_text("Assumed", best.plan.assumptions) +
                       list_text("Warnings", best.result.warnings));
  }
  return text;
}

}  // namespace zeroplan
