#include "tuner/fit_remedies.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/diagnostic.hpp"
#include "model/hardware/cluster.hpp"
#include "model/plan/trainer.hpp"
#include "tuner/fit_batch.hpp"
#include "tuner/fit_ranking.hpp"
#include "tuner/headroom.hpp"

namespace zeroplan {
namespace {

std::vector<StrategyResult> predict_all(const Question& question, const PredictOptions& options) {
  std::vector<StrategyResult> results;
  for (const Strategy& strategy : strategies(question.scenario)) {
    question.missing->attempt(describe(strategy), [&] {
      try {
        results.push_back(most_frugal(question, strategy, options));
      } catch (const InputError&) {  // what the changed question refuses is no way out
      }
    });
  }
  return results;
}

// The best strategy of a changed question, if any fits.
std::optional<StrategyResult> best_strategy(const Question& question,
                                            const PredictOptions& options) {
  std::vector<StrategyResult> results = predict_all(question, options);
  const auto best = best_of(results);
  if (!best) return std::nullopt;
  return std::move(results[*best]);
}

struct RemedySearch {
  const Question& question;
  const PredictOptions& options;
  const StrategyResult& example;  // any strategy of the question: its resolved workload
  std::vector<Remedy> found;

  void keep(const Phrase& change, std::optional<StrategyResult> best) {
    if (!best) return;
    best->result = played(best->plan, options);
    best->simulated = true;
    if (best->result.fits) found.push_back({change, std::move(*best)});
  }
};

Json evaluation_json(const EvaluationSettings& settings) {
  Json inside = Json::object({{"batch_size", settings.batch_size}});
  if (settings.accumulation_steps > 0) inside["accumulation_steps"] = settings.accumulation_steps;
  if (settings.samples > 0) inside["samples"] = settings.samples;
  return Json::object({{settings.keeps_logits ? "logits" : "loss", inside}});
}

// Where the evaluation is what does not fit.
void try_evaluation(RemedySearch& search) {
  if (search.example.plan.evaluation == nullptr) return;
  const EvaluationSettings now = *search.example.plan.evaluation;
  const auto attempt = [&](const EvaluationSettings& settings, const Phrase& change) {
    Question changed = search.question;
    set(changed, ScenarioKey::evaluation, evaluation_json(settings));
    const std::size_t before = search.found.size();
    search.keep(phrase("evaluate with {}", change), best_strategy(changed, search.options));
    return search.found.size() > before;
  };
  EvaluationSettings tried = now;
  if (now.keeps_logits) {
    tried.accumulation_steps = 1;
    const bool is_change = now.accumulation_steps != 1;
    if (is_change && attempt(tried, "eval_accumulation_steps 1")) return;
    tried = now;
    tried.keeps_logits = false;
    if (attempt(tried, "prediction_loss_only")) return;
  }
  if (now.batch_size == 1) return;
  tried.batch_size = 1;
  attempt(tried,
          now.keeps_logits ? "per_device_eval_batch_size 1 and prediction_loss_only"
                           : "per_device_eval_batch_size 1");
}

void try_checkpointing(RemedySearch& search) {
  const ExplicitValue* said = search.question.scenario.find(ScenarioKey::activation_checkpointing);
  if (said == nullptr || said->value.as_string() == "full") return;
  Question changed = search.question;
  changed.scenario.unset(ScenarioKey::activation_checkpointing);
  search.keep("use full activation checkpointing", best_strategy(changed, search.options));
}

// Where somebody said that it is to be reentrant.
void try_not_reentrant(RemedySearch& search) {
  if (!holds_frozen_weights(search.example.plan)) return;
  Question changed = search.question;
  set(changed, ScenarioKey::checkpoint_reentrant, Json(false));
  search.keep("checkpoint with use_reentrant=False (--checkpoint-reentrant false)",
              best_strategy(changed, search.options));
}

// Where somebody said eager: scores of every token for every other.
void try_fused_attention(RemedySearch& search) {
  const Workload& workload = search.example.plan.workload;
  const bool said = search.question.scenario.find(ScenarioKey::attention) != nullptr;
  if (!said || workload.attention != Attention::eager) return;
  Question changed = search.question;
  changed.scenario.unset(ScenarioKey::attention);
  search.keep("use the attention of transformers' default (--attention sdpa)",
              best_strategy(changed, search.options));
}

void try_micro_batch(RemedySearch& search) {
  const std::int64_t now = search.example.plan.workload.micro_batch_size;
  for (std::int64_t micro_batch = now / 2; micro_batch >= 1; micro_batch /= 2) {
    Question changed = search.question;
    set_micro_batch(changed, micro_batch);
    auto best = best_strategy(changed, search.options);
    if (!best) continue;
    search.keep(phrase("use micro-batch {} instead of {}", micro_batch, now), std::move(best));
    return;
  }
}

void try_shorter_sequences(RemedySearch& search) {
  const std::int64_t now = search.example.plan.workload.sequence_length;
  for (std::int64_t length = now / 2; length >= kSequenceQuantum; length /= 2) {
    Question changed = search.question;
    set_sequence_length(changed, length);
    auto best = best_strategy(changed, search.options);
    if (!best) continue;
    search.keep(phrase("shorten sequences to {} tokens (from {})", length, now), std::move(best));
    return;
  }
}

void try_half_precision(RemedySearch& search) {
  if (search.example.plan.workload.precision != Precision::fp32) return;
  const bool bf16 = search.question.prepared.cluster->gpu.bf16_supported;
  Question changed = search.question;
  set(changed, ScenarioKey::precision, Json(bf16 ? "bf16" : "fp16"));
  if (changed.base != nullptr) {
    DsConfig config = *changed.base;
    config.set(Knob::bf16_enabled, bf16);
    config.set(Knob::fp16_enabled, !bf16);
    changed.base = std::make_shared<const DsConfig>(config);
  }
  search.keep(Phrase("train in ") + (bf16 ? "bf16" : "fp16") + " instead of fp32",
              best_strategy(changed, search.options));
}

// Weights in 16 bits where FSDP and DDP keep fp32 beside 16-bit arithmetic: Adam's states follow.
void try_half_weights(RemedySearch& search) {
  const Plan& plan = search.example.plan;
  const bool fsdp = plan.workload.engine == TrainingEngine::fsdp;
  if (!is_torch_engine(plan.workload.engine) || plan.workload.precision != Precision::bf16) return;
  if ((fsdp ? plan.fsdp.storage_dtype : plan.ddp.weight_dtype) != DType::fp32) return;
  Question changed = search.question;
  set(changed, ScenarioKey::weights_dtype, fsdp ? "pure-bf16" : "bf16");
  search.keep(fsdp ? "train in bf16 without mixed precision (dtype=torch.bfloat16, bf16=False): no "
                     "fp32 copy of the weights"
                   : "load the weights in bf16 (dtype=torch.bfloat16): gradients and Adam's states "
                     "are in bf16, too",
              best_strategy(changed, search.options));
}

// Four-bit weights that wait on the host until FSDP shards them.
void try_loading_on_host(RemedySearch& search) {
  const Plan& plan = search.example.plan;
  if (!plan.loads_whole || plan.workload.engine != TrainingEngine::fsdp) return;
  Question changed = search.question;
  set(changed, ScenarioKey::load_device, "cpu");
  search.keep(phrase("load the four-bit weights on the host: device_map={} in from_pretrained "
                     "(--load-device cpu)",
                     "{\"\": \"cpu\"}"),
              best_strategy(changed, search.options));
}

// Where the user's file says how what is offloaded lies: strategies decide the rest.
void try_leaner_offload(RemedySearch& search) {
  if (search.question.base == nullptr) return;
  std::vector<StrategyResult> results;
  for (const Strategy& strategy : strategies(search.question.scenario)) {
    for (const Strategy& leaner : with_less_host_memory(strategy, nullptr)) {
      results.push_back(most_frugal(search.question, leaner, search.options));
    }
  }
  const auto best = best_of(results);
  if (!best) return;
  const Strategy& chosen = results[*best].strategy;
  const char* change = !chosen.small_sub_groups ? "offload with pin_memory false"
                       : chosen.pinned
                           ? "use a sub_group_size of 1e7"
                           : "offload with pin_memory false and a sub_group_size of 1e7";
  search.keep(change, std::move(results[*best]));
}

// The strategy that would do with the least host memory, and that much.
void try_more_host_memory(RemedySearch& search) {
  Question changed = search.question;
  Cluster cluster = *changed.prepared.cluster;
  const Bytes now = cluster.node.host_memory.value;
  const auto with = [&](Bytes memory) {
    cluster.node.host_memory.value = memory;
    cluster.node.host_memory.relative_sd = 0.0;  // whoever has it knows
    cluster.node.host_memory.confidence = Confidence::stated;
    changed.prepared.cluster = std::make_shared<const Cluster>(cluster);
    return predict_all(changed, search.options);
  };
  Bytes least = Bytes::infinite();
  for (const StrategyResult& result : with(Bytes::infinite())) {
    if (result.result.fits) least = std::min(least, result.result.host.peak);
  }
  if (least.is_infinite()) return;
  // The spread of the prediction asks for more than its mean: a tenth, a quarter, or half as much.
  for (const double margin : {1.1, 1.25, 1.5}) {
    const Bytes enough = enough_host_memory(least, margin);
    if (enough <= now) continue;
    std::vector<StrategyResult> results = with(enough);
    const auto best = best_of(results);
    if (!best) continue;
    search.keep(phrase("have {} GiB of host memory per node instead of {}",
                       enough.count() >> 30,
                       std::llround(now.gib())),
                std::move(results[*best]));
    return;
  }
}

void try_more_nodes(RemedySearch& search) {
  const Cluster& cluster = *search.question.prepared.cluster;
  constexpr std::int64_t kMostTimes = 64;
  const auto with = [&](std::int64_t nodes) {
    Question changed = search.question;
    set_nodes(changed, nodes);
    return best_strategy(changed, search.options);
  };
  const std::int64_t most_times = std::min(kMostTimes, kMostGpus / cluster.total_gpus());
  for (std::int64_t times = 2; times <= most_times; times *= 2) {
    if (!with(cluster.nodes * times)) continue;
    std::int64_t bad = cluster.nodes * times / 2;
    std::int64_t good = cluster.nodes * times;
    while (good - bad > 1) {
      const std::int64_t middle = bad + (good - bad) / 2;
      (with(middle) ? good : bad) = middle;
    }
    const std::int64_t more = (good - cluster.nodes) * cluster.gpus_per_node();
    search.keep(Phrase("add ") + std::to_string(more) + (more == 1 ? " GPU: " : " GPUs: ") +
                    std::to_string(good) + " nodes of " + std::to_string(cluster.gpus_per_node()) +
                    " instead of " + std::to_string(cluster.nodes),
                with(good));
    return;
  }
}

}  // namespace

std::vector<Remedy> remedies(const Question& question,
                             const StrategyResult& example,
                             const PredictOptions& options) {
  constexpr std::size_t kMost = 3;
  RemedySearch search{question, options, example, {}};
  for (const auto attempt : {try_evaluation,
                             try_checkpointing,
                             try_not_reentrant,
                             try_fused_attention,
                             try_leaner_offload,
                             try_micro_batch,
                             try_half_precision,
                             try_half_weights,
                             try_loading_on_host,
                             try_shorter_sequences,
                             try_more_host_memory,
                             try_more_nodes}) {
    if (search.found.size() == kMost) break;
    question.missing->attempt("a change that might make it fit", [&] {
      try {
        attempt(search);
      } catch (const InputError&) {  // of a length or a batch that the question refuses
      }
    });
  }
  return std::move(search.found);
}

}  // namespace zeroplan
