#include "cli/why_text.hpp"

#include "base/phrase_list.hpp"
#include "cli/step_text.hpp"
#include "cli/table.hpp"
#include "evidence/accuracy.hpp"
#include "model/predict/verdict.hpp"
#include "tuner/fit_ranking.hpp"

namespace zeroplan::cli {
namespace {

using tuner::StrategyResult;
using tuner::WhyKind;

Phrase outcome(const StrategyResult& other, const StrategyResult& chosen) {
  if (!other.result.fits) return short_text(other.result);
  const Phrase comparison = comparison_text(other, chosen);
  const Phrase condition = condition_text(other.result);
  // A condition that the chosen plan has too sets nothing apart.
  const bool alike = condition.empty() || condition == condition_text(chosen.result);
  return alike ? comparison : phrase("{}{}", comparison, condition);
}

// Tokens a second of all GPUs.
double speed_in_all(const StrategyResult& row) {
  return row.result.step.tokens_per_second_per_gpu *
         static_cast<double>(row.plan.cluster.total_gpus());
}

Phrase one_node_text(const StrategyResult& other, const StrategyResult& chosen) {
  if (!other.result.fits) return phrase("one node: {}", lack_text(other));
  return phrase("one node, {}: {:.0f} tokens/s in all, {:.0f} % of what {} nodes make{}",
                full_name(other),
                speed_in_all(other),
                100.0 * speed_in_all(other) / speed_in_all(chosen),
                chosen.plan.cluster.nodes,
                condition_text(other.result));
}

// The part of a strategy that sets it apart from the chosen one.
Phrase changed(WhyKind kind, tuner::Strategy strategy) {
  if (kind == WhyKind::no_checkpointing) return "without activation checkpointing";
  if (kind == WhyKind::checkpointing) return "with full activation checkpointing";
  strategy.checkpointing = ActivationCheckpointing::none;
  return describe(strategy);
}

Json row_json(const StrategyResult& row, const StrategyResult& chosen) {
  const StepResult& result = row.result;
  const BatchSizes batch = batch_of(row);
  Json json = Json::object(
      {{"name", describe(row.strategy).english()},
       {"nodes", row.plan.cluster.nodes},
       {"micro_batch_size", batch.micro_batch},
       {"gradient_accumulation_steps", batch.accumulation},
       {"fits", result.fits},
       {"at_limit", result.fits && tuner::is_at_limit(result)},
       {"fit_probability", result.fit_probability},
       {"gpu_bytes", result.gpu.peak_total.count()},
       {"host_bytes", result.host.peak.count()},
       {"step_seconds", result.step.total.seconds()},
       {"tokens_per_second_per_gpu", result.step.tokens_per_second_per_gpu},
       {"speed_change", tuner::comparable_speed(row) / tuner::comparable_speed(chosen) - 1.0},
       {"short_of", Json()}});
  if (!result.limits.empty()) {
    const Limit& limit = result.limits.front();
    json["short_of"] = Json::object({{"resource", name(kResourceNames, limit.resource)},
                                     {"needed_bytes", limit.needed.count()},
                                     {"margin_bytes", limit.margin.count()},
                                     {"available_bytes", limit.available.count()}});
  }
  return json;
}

// "published peaks of ZeRO-2 (71): 0.4 % off in the median, 95 of 100 within 5.1 %". `wanted`: the
// plan's kind.
Phrase compared(const char* what, const KnownErrors& errors, const std::string& wanted) {
  const Phrase kind =
      errors.kind == "all" ? phrase("all kinds, none of {}", wanted) : Phrase(errors.kind);
  const double median = 100.0 * errors.median;
  if (errors.rows == 1) return phrase("{} of {} (1): {:.1f} % off", what, kind, median);
  return phrase("{} of {} ({}): {:.1f} % off in the median, 95 of 100 within {:.1f} %",
                what,
                kind,
                errors.rows,
                median,
                100.0 * errors.p95);
}

// The assumptions of the plan that somebody could measure or say.
Phrase surer(const Plan& plan, const evidence::Accuracy& known) {
  std::vector<Phrase> ways;
  if (plan.workload.engine != TrainingEngine::embedded) {
    ways.push_back("a rehearsal of your program (zeroplan rehearse)");
  }
  if (plan.profile == nullptr || !has_figures(*plan.profile)) {
    ways.push_back("a profile of the machine (zeroplan profile)");
  }
  if (!known.own_memory && !known.own_time) {
    ways.push_back("logs of yours (zeroplan import, zeroplan validate)");
  }
  if (plan.cluster.node.host_memory.confidence == Confidence::assumed) {
    ways.push_back("the host memory (--host-memory)");
  }
  if (plan.cluster.network_assumed) ways.push_back("the network (--network)");
  return phrase_list(ways, "; ");
}

}  // namespace

std::vector<Phrase> trust_lines(const Plan& plan) {
  const evidence::Accuracy known = evidence::accuracy_of(plan);
  const std::string kind = evidence::strategy_of(plan);
  std::vector<Phrase> memory = {
      compared("rehearsed allocations", known.rehearsed, evidence::rehearsed_kind_of(plan)),
      compared("published peaks", known.memory, kind)};
  std::vector<Phrase> time = {compared("published steps", known.time, kind)};
  if (known.own_memory) memory.push_back(compared("your peaks", *known.own_memory, kind));
  if (known.own_time) time.push_back(compared("your steps", *known.own_time, kind));
  return {phrase("memory: {}", phrase_list(memory, "; ")),
          phrase("time: {}", phrase_list(time, "; ")),
          phrase("surer by: {}", surer(plan, known))};
}

Json trust_json(const Plan& plan, const Translation& words) {
  const evidence::Accuracy known = evidence::accuracy_of(plan);
  Json text = Json::array();
  for (const Phrase& line : trust_lines(plan)) text.push_back(words.text(line));
  return Json::object({{"rehearsed", to_json(known.rehearsed)},
                       {"memory", to_json(known.memory)},
                       {"time", to_json(known.time)},
                       {"own_memory", known.own_memory ? to_json(*known.own_memory) : Json()},
                       {"own_time", known.own_time ? to_json(*known.own_time) : Json()},
                       {"text", text}});
}

Phrase alternative_text(const tuner::Alternative& alternative, const StrategyResult& chosen) {
  const double percent = 100.0 * alternative.share.value_or(0.0);
  switch (alternative.kind) {
    case WhyKind::one_node:
      return one_node_text(*alternative.other, chosen);
    case WhyKind::communication:
      return alternative.other
                 ? phrase(
                       "waiting for other GPUs takes {:.0f} % of a step; on a network "
                       "between nodes that is twice as fast: {}",
                       percent,
                       outcome(*alternative.other, chosen))
                 : phrase("waiting for other GPUs takes {:.0f} % of a step", percent);
    case WhyKind::smaller_micro_batch:
    case WhyKind::larger_micro_batch:
      return phrase("with {}: {}",
                    batch_text(batch_of(*alternative.other)),
                    outcome(*alternative.other, chosen));
    default:
      break;
  }
  const StrategyResult& best = *alternative.other;
  const Phrase change = changed(alternative.kind, best.strategy);
  const Phrase at_best = outcome(best, chosen);
  Phrase text = phrase("{}, {}: {}", change, batch_text(batch_of(best)), at_best);
  // Where the smallest micro-batch does not fit, a larger one says no more.
  if (alternative.same_batch && best.result.fits) {
    text = phrase("{}, {}: {}; {}: {}",
                  change,
                  batch_text(batch_of(chosen)),
                  outcome(*alternative.same_batch, chosen),
                  batch_text(batch_of(best)),
                  at_best);
  }
  if (!alternative.share) return text;
  return alternative.kind == WhyKind::no_checkpointing
             ? phrase("{}; recomputation takes {:.0f} % of a step", text, percent)
             : phrase("{}; waiting for offload takes {:.0f} % of a step", text, percent);
}

Json alternatives_json(const std::vector<tuner::Alternative>& alternatives,
                       const StrategyResult& chosen,
                       const Translation& words) {
  Json list = Json::array();
  for (const tuner::Alternative& alternative : alternatives) {
    const auto row = [&](const std::optional<StrategyResult>& one) {
      return one ? row_json(*one, chosen) : Json();
    };
    list.push_back(Json::object({{"kind", name(tuner::kWhyKindNames, alternative.kind)},
                                 {"text", words.text(alternative_text(alternative, chosen))},
                                 {"share", alternative.share ? Json(*alternative.share) : Json()},
                                 {"other", row(alternative.other)},
                                 {"same_batch", row(alternative.same_batch)}}));
  }
  return list;
}

}  // namespace zeroplan::cli
