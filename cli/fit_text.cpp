#include "cli/fit_text.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "cli/remedies.hpp"
#include "cli/simulate_text.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "cli/why_text.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/packed_copy.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/run_phases.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/kit/trainer_line.hpp"

namespace zeroplan::cli {
namespace {

Phrase sequences_text(std::int64_t count) {
  return count == 1 ? phrase("{} sequence", count) : phrase("{} sequences", count);
}

std::int64_t global_batch(const Plan& plan) {
  return plan.workload.micro_batch_size * plan.workload.gradient_accumulation_steps *
         plan.degrees.data;
}

Phrase fit_question_line(const Plan& plan) {
  const std::optional<PackedCopy> copy = packed_copy(*plan.whole_model);
  const std::string precision(name(kPrecisionNames, plan.workload.precision));
  return phrase(
      "{} ({} parameters) on {}, {} tokens, {} a step, {}",
      plan.whole_model->name.empty() ? plan.whole_model->architecture : plan.whole_model->name,
      short_count_text(count_parameters(*plan.whole_model).total.count()),
      short_name(plan.cluster),
      plan.workload.sequence_length,
      sequences_text(global_batch(plan)),
      copy ? phrase("{} in the place of {}", precision, copy->format) : Phrase(precision));
}

Phrase largest_part(const GpuMemory& gpu) {
  const auto largest = std::max_element(gpu.breakdown_at_peak.begin(), gpu.breakdown_at_peak.end());
  const auto category =
      static_cast<std::size_t>(std::distance(gpu.breakdown_at_peak.begin(), largest));
  return phrase("{} {}", plain_name(kMemoryCategoryNames[category]), gib_text(*largest));
}

const char* if_assumed(Confidence confidence) {
  return confidence == Confidence::assumed ? " (assumed)" : "";
}

// What an evaluation needs, which is no part of a step.
Phrase evaluation_line(const tuner::StrategyResult& row) {
  if (row.plan.evaluation == nullptr) return "";
  const GpuMemory& gpu = row.result.gpu;
  const Bytes needed = evaluation_phase(row.plan, gpu).allocated +
                       at(gpu.breakdown_at_peak, MemoryCategory::cuda_context);
  const GibPair pair(needed, gpu.capacity);
  return phrase("  evaluation   {} of {} in batches of {}\n",
                pair.needed,
                pair.there,
                row.plan.evaluation->batch_size);
}

// A plan that fills the GPU: what that costs and what does not.
Phrase limit_and_safer_text(const tuner::FitAnswer& answer) {
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  Phrase text = at_limit_text(best.result);
  if (answer.with_expandable_segments) {
    const StepResult& there = *answer.with_expandable_segments;
    text += phrase(
        "  segments     with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
        "(--expandable-segments true): {}, {:.0f} tokens/s per GPU\n",
        gib_text(there.gpu.peak_total),
        there.step.tokens_per_second_per_gpu);
  }
  if (best.safer) {
    text += phrase("  safe         {}: {}, {:.0f} tokens/s per GPU\n",
                   batch_text(best.safer->sizes),
                   gib_text(best.safer->gpu_memory),
                   best.safer->tokens_per_second_per_gpu);
  }
  if (best.faster) {
    text += phrase("  faster       at the GPU's limit: {}: {}, {:.0f} tokens/s per GPU\n",
                   batch_text(best.faster->sizes),
                   gib_text(best.faster->gpu_memory),
                   best.faster->tokens_per_second_per_gpu);
  }
  return text;
}

// Ways differ in stage and offload; where there is one such way, in checkpointing.
std::size_t ways_that_fit(const tuner::FitAnswer& answer) {
  std::set<std::tuple<int, OffloadDevice, OffloadDevice>> ways;
  std::size_t rows = 0;
  for (const tuner::StrategyResult& row : answer.strategies) {
    const tuner::Strategy& s = row.strategy;
    if (!row.result.fits) continue;
    ways.emplace(s.stage, s.offload_optimizer, s.offload_parameter);
    ++rows;
  }
  return ways.size() > 1 ? ways.size() : rows;
}

// Nothing needs less, and nothing else fits.
bool is_most_frugal(const tuner::FitAnswer& answer) {
  if (answer.without_deepspeed) return false;
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  return best.plan.workload.micro_batch_size == 1 && ways_that_fit(answer) == 1;
}

// Of what is simpler and does not fit: what needs the least, and how much of it.
Phrase why_text(const tuner::FitAnswer& answer) {
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  const auto simpler = [&](const tuner::StrategyResult& row) {
    const int offload = tuner::offload_of(row.strategy);
    const int chosen = tuner::offload_of(best.strategy);
    return offload < chosen || (offload == chosen && row.strategy.stage < best.strategy.stage);
  };
  const auto placement_fits = [&](const tuner::StrategyResult& row) {
    return std::any_of(answer.strategies.begin(),
                       answer.strategies.end(),
                       [&](const tuner::StrategyResult& other) {
                         return other.result.fits && same_placement(other.strategy, row.strategy);
                       });
  };
  const tuner::StrategyResult* nearest = nullptr;
  for (const tuner::StrategyResult& row : answer.strategies) {
    if (row.result.limits.empty() || !simpler(row) || placement_fits(row)) continue;
    const bool less = nearest == nullptr ||
                      row.result.limits.front().needed < nearest->result.limits.front().needed;
    if (less) nearest = &row;
  }
  const std::size_t ways = ways_that_fit(answer);
  Phrase text = ways > 1 ? phrase("  why          the best of {} ways that fit", ways)
                : answer.without_deepspeed ? "  why          the only way of DeepSpeed's that fits"
                                           : "  why          the only way that fits";
  if (nearest != nullptr) text.append(phrase("; {}", lack_text(*nearest)));
  return text + "\n";
}

// It trains, and only its evaluation does not fit, which a setting of its own mends.
bool lacks_for_evaluation_alone(const tuner::StrategyResult& row) {
  const std::vector<Limit>& limits = row.result.limits;
  return row.plan.evaluation != nullptr && limits.size() == 1 &&
         !limits.front().cheapest_change.empty() &&
         limits.front().largest_term.english().starts_with("evaluation");
}

// Packages that somebody has to install, or would gain by.
Phrase packages_text(const tuner::FitAnswer& answer) {
  Phrase text;
  if (answer.needs.any()) {
    const tuner::StrategyResult& nearest = *answer.nearest_without;
    text += phrase("  needs        the package {} ({}); without it nothing fits",
                   names_of(answer.needs),
                   flags_of(answer.needs));
    if (!nearest.result.limits.empty()) {
      text.append(phrase(": {}", lack_text(nearest)));
      if (lacks_for_evaluation_alone(nearest)) {
        text.append(phrase("; or {}", nearest.result.limits.front().cheapest_change));
      }
    }
    text += "\n";
  }
  if (answer.faster_with) {
    const tuner::StrategyResult& row = answer.faster_with->best;
    text += phrase("  faster       with the package {} ({}): {}, {:.0f} tokens/s per GPU\n",
                   names_of(answer.faster_with->packages),
                   flags_of(answer.faster_with->packages),
                   full_name(row),
                   row.result.step.tokens_per_second_per_gpu);
  }
  return text;
}

// The Trainer alone has another format of weights, which is said.
Phrase without_deepspeed_text(const tuner::FitAnswer& answer) {
  if (!answer.without_deepspeed) return "";
  const tuner::StrategyResult& row = *answer.without_deepspeed;
  Phrase text = phrase(
      "  alone        the Trainer without DeepSpeed (--engine ddp): {}, {}, {:.0f} tokens/s per "
      "GPU",
      batch_text(tuner::batch_of(row)),
      gib_text(row.result.gpu.peak_total),
      row.result.step.tokens_per_second_per_gpu);
  const DType weights = row.plan.ddp.weight_dtype;
  if (row.plan.workload.method == Method::full && weights != DType::fp32) {
    text.append(phrase("; its weights and the optimizer's states are in {}, without fp32 copies",
                       name(weights)));
  }
  return text + "\n";
}

Phrase drive_line(const tuner::StrategyResult& row) {
  const std::optional<Nvme>& nvme = row.plan.cluster.node.nvme;
  if (row.result.nvme <= Bytes::zero() || !nvme) return "";
  return phrase("  NVMe         {} of {}{} per node\n",
                gib_text(row.result.nvme),
                gib_text(nvme->capacity.value),
                if_assumed(nvme->capacity.confidence));
}

// `cost`: of the whole training; empty where nobody asked.
Phrase yes_text(const tuner::FitAnswer& answer, const Phrase& cost) {
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  const StepResult& result = best.result;
  const GibPair gpu(result.gpu.peak_total, result.gpu.capacity);
  Phrase text = phrase(
      "{}{}: {}\n"
      "  GPU memory   {} of {} at the peak, which is in {}; largest part: {}\n",
      is_most_frugal(answer) ? "yes, but only with the most frugal" : "yes",
      other_releases_text(best.plan) + condition_text(result),
      full_name(best),
      gpu.needed,
      gpu.there,
      name(kPhaseNames, result.gpu.peak_phase),
      largest_part(result.gpu));
  text += evaluation_line(best) + host_memory_text(best.plan, result) + drive_line(best);
  text += generation_text(best.plan);
  text += phrase(
      "  speed        {} a step, {:.0f} tokens/s per GPU, {:.0f} % of the GPU's peak, bound by "
      "{}\n",
      seconds_text(result.step.total),
      result.step.tokens_per_second_per_gpu,
      result.step.mfu * 100.0,
      plain_name(name(kBoundNames, result.step.bound)));
  if (!cost.empty()) text += phrase("  cost         {}\n", cost);
  text += phrase("  probability  {} that it fits\n", probability_text(result));
  return text + limit_and_safer_text(answer) + why_text(answer) + packages_text(answer) +
         without_deepspeed_text(answer);
}

Phrase runners_up_text(const tuner::FitAnswer& answer) {
  if (!answer.complete) {
    return "\nA first answer: the others are not simulated, and more offload is not looked at; "
           "without "
           "--quick all are.\n";
  }
  if (answer.runners_up.empty()) {
    return ways_that_fit(answer) == 1
               ? answer.without_deepspeed ? "\nNothing else of DeepSpeed's fits.\n"
                                          : "\nNothing else fits.\n"
               : "\nWhat else fits differs in checkpointing alone, or needs and takes as much.\n";
  }
  const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
  Phrase text = "\nNext best:\n";
  for (const std::size_t index : answer.runners_up) {
    const tuner::StrategyResult& other = answer.strategies[index];
    text += phrase("  - {}: ", full_name(other)).append(comparison_text(other, best)) + "\n";
  }
  return text;
}

Phrase with_memory_line(const tuner::StrategyResult& row) {
  return phrase("with {}: {}, {:.0f} tokens/s per GPU",
                gib_text(tuner::enough_host_memory(row.result.host.peak)),
                full_name(row),
                row.result.step.tokens_per_second_per_gpu);
}

// The best strategies with other amounts of host memory, where the question does not state one.
Phrase host_memory_text(const tuner::FitAnswer& answer) {
  Phrase text;
  if (answer.usual_host) {
    const tuner::StrategyResult& best = answer.strategies[*answer.recommended];
    const std::string usual = gib_text(best.result.host.capacity);
    text += "  - ";
    text += !answer.usual_host->best
                ? phrase("with the usual {}: nothing fits", usual)
                : phrase("with the usual {}: {}, {:.0f} tokens/s per GPU",
                         usual,
                         full_name(*answer.usual_host->best),
                         answer.usual_host->best->result.step.tokens_per_second_per_gpu);
    if (answer.usual_host->needs.any()) {
      text.append(phrase(", with the package {} ({})",
                         names_of(answer.usual_host->needs),
                         flags_of(answer.usual_host->needs)));
    }
    if (const auto& remedy = answer.usual_host->remedy) {
      text.append(phrase("; {}: {}, {:.0f} tokens/s per GPU",
                         remedy->change,
                         full_name(remedy->best),
                         remedy->best.result.step.tokens_per_second_per_gpu));
    }
    text += "\n";
  }
  for (const std::size_t index : answer.behind_host_memory) {
    text += "  - " + with_memory_line(answer.strategies[index]) + "\n";
  }
  return text.empty() ? ""
                      : phrase("\nWith another amount of host memory (--host-memory):\n{}", text);
}

Phrase one_node_text(const tuner::FitAnswer& answer) {
  if (!answer.one_node) return "";
  const tuner::StrategyResult& row = *answer.one_node;
  return phrase("  one node     is enough: {}, {:.0f} tokens/s per GPU\n",
                full_name(row),
                row.result.step.tokens_per_second_per_gpu);
}

// The strategy that comes nearest, and what it lacks.
Phrase no_text(const tuner::FitAnswer& answer) {
  const tuner::StrategyResult& best = tuner::nearest_of(answer.strategies);
  Phrase text = phrase("no: no strategy fits; the nearest is {}\n", describe(best.strategy));
  for (const Limit& limit : best.result.limits) {
    text += limit_text(limit);
  }
  return text + because_text(best.plan, best.result);
}

Phrase remedies_text(const tuner::FitAnswer& answer) {
  if (answer.remedies.empty()) {
    return phrase("\nNo change makes it fit, nor do all of them together. {}",
                  tried_line(answer.tried));
  }
  Phrase text = "\nWhat would make it fit, cheapest first:\n";
  text += remedy_lines(answer.remedies);
  text += tried_line(answer.tried);
  return text;
}

// What a strategy lacks; empty where it fits.
Phrase short_of(const StepResult& result) {
  constexpr EnumNames<Resource, 4> kShort{{"GPU", "host", "NVMe", "time"}};
  Phrase text;
  if (result.host_condition) return "usual host";
  if (result.fits) return text;
  for (const Limit& limit : result.limits) {
    const std::string_view what = name(kShort, limit.resource);
    text = text.empty() ? Phrase(what) : phrase("{}, {}", text, what);
  }
  return text;
}

std::vector<Phrase> row_of(const tuner::FitAnswer& answer, std::size_t index) {
  const tuner::StrategyResult& row = answer.strategies[index];
  const StepResult& result = row.result;
  const BatchSizes batch = batch_of(row);
  const std::string rough = row.simulated ? "" : "~";  // cannot be compared with simulated rows
  return {answer.recommended == index ? "*" : "",
          tuner::sharding_name(row.strategy),
          std::string(tuner::name(row.strategy.offload_optimizer)),
          std::string(tuner::name(row.strategy.offload_parameter)),
          std::string(name(kActivationCheckpointingNames, row.strategy.checkpointing)),
          std::to_string(batch.micro_batch),
          std::to_string(batch.accumulation),
          !result.fits                 ? "no"
          : tuner::is_at_limit(result) ? "at limit"
                                       : "yes",
          rough + GibPair(result.gpu.peak_total, result.gpu.capacity, "").needed,
          gib_number(result.host.peak),
          rough + fixed_text(result.step.tokens_per_second_per_gpu, 0),
          short_of(result)};
}

// Of the rows that differ in checkpointing alone the better one, unless `all` are wanted.
std::vector<std::size_t> shown_rows(const tuner::FitAnswer& answer, bool all) {
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < answer.strategies.size(); ++i) {
    const tuner::StrategyResult& row = answer.strategies[i];
    const bool same =
        !shown.empty() && same_placement(answer.strategies[shown.back()].strategy, row.strategy);
    if (all || !same) {
      shown.push_back(i);
      continue;
    }
    const tuner::StrategyResult& other = answer.strategies[shown.back()];
    const bool better =
        row.simulated != other.simulated ? row.simulated : tuner::is_preferred(row, other);
    if (answer.recommended != shown.back() && (answer.recommended == i || better)) shown.back() = i;
  }
  return shown;
}

std::string strategies_text(const tuner::FitAnswer& answer, bool all, const Translation& words) {
  std::vector<std::vector<Phrase>> rows;
  bool any_rough = false;
  for (const std::size_t index : shown_rows(answer, all)) {
    rows.push_back(row_of(answer, index));
    any_rough = any_rough || !answer.strategies[index].simulated;
  }
  const bool runs_zero = !is_torch_engine(answer.strategies.front().strategy.engine);
  Phrase hint = any_rough ? "~: by the analytic estimate; the others were simulated\n" : "";
  if (!all && rows.size() < answer.strategies.size()) {
    hint += "Each with the better checkpointing; --all: with both\n";
  }
  return "\n" +
         table({{""},
                {runs_zero ? "ZeRO" : "sharding", runs_zero ? Align::right : Align::left},
                {"optimizer"},
                {"parameters"},
                {"checkpointing"},
                {"mbs", Align::right},
                {"gas", Align::right},
                {"fits"},
                {"GPU GiB", Align::right},
                {"host GiB", Align::right},
                {"tokens/s/GPU", Align::right},
                {"short of"}},
               rows,
               words) +
         words.text(hint);
}

Phrase room_text(const tuner::FitAnswer& answer, const tuner::StrategyResult& best) {
  Phrase text;
  if (answer.headroom) text = headroom_text(*answer.headroom, best.plan);
  if (best.result.at_network.empty()) return text;
  std::string speeds;
  for (const NetworkAlternative& alternative : best.result.at_network) {
    speeds += fmt::format("{}{:.0f} Gb/s: {:.0f}",
                          speeds.empty() ? "" : ", ",
                          alternative.gigabits_per_second,
                          alternative.tokens_per_second_per_gpu);
  }
  text += phrase("  network      assumed (--network); tokens/s per GPU at {}\n", speeds);
  return text;
}

Phrase reasons_text(const std::vector<tuner::Alternative>& reasons,
                    const tuner::StrategyResult& best) {
  std::vector<Phrase> lines;
  for (const tuner::Alternative& reason : reasons) lines.push_back(alternative_text(reason, best));
  return list_text("Why not otherwise, each simulated", lines);
}

}  // namespace

std::string fit_text(const tuner::FitAnswer& answer,
                     const std::vector<tuner::Alternative>& reasons,
                     const Phrase& cost,
                     bool all,
                     const Translation& words) {
  const tuner::StrategyResult& best = answer.recommended ? answer.strategies[*answer.recommended]
                                                         : tuner::nearest_of(answer.strategies);
  std::string text = words.text(fit_question_line(best.plan) + "\n");
  const Phrase warnings = list_text("Warnings", best.result.warnings);
  Phrase about;
  if (answer.recommended) {
    about = yes_text(answer, cost) + job_lines(best.result.job);
    about += room_text(answer, best) + one_node_text(answer) + warnings +
             reasons_text(reasons, best) + runners_up_text(answer) + host_memory_text(answer) +
             list_text("How sure", trust_lines(best.plan));
    if (const Phrase lines = tuner::trainer_lines(best.plan); !lines.empty())
      about += Phrase("\n").append(lines);
  } else {
    about = no_text(answer) + remedies_text(answer) + host_memory_text(answer) + warnings +
            list_text("How sure", trust_lines(best.plan));
  }
  text += words.text(about) + strategies_text(answer, all, words) +
          words.text(list_text("Assumed", best.result.assumptions));
  if (!answer.recommended) return text;
  if (!runs_deepspeed(best.plan.workload)) {
    return text + "\n" + words.text("The files that start it: -o DIR\n");
  }
  return text + "\nds_config.json:\n" + emit(written_ds_config(best.plan)).dump(2) + "\n";
}

}  // namespace zeroplan::cli
