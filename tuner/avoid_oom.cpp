#include "tuner/avoid_oom.hpp"

#include <algorithm>
#include <utility>

#include "tuner/strategies.hpp"

namespace zeroplan {
namespace {

// Buckets of a tenth of DeepSpeed's default still hide latency on every link we know.
constexpr std::int64_t kSmallBucket = 50'000'000;

bool partitions(const Plan& plan) {
  return runs_deepspeed(plan.workload) && plan.degrees.partition() > 1;
}

void add_buckets(const Plan& base, std::vector<Variation>& changes) {
  if (!runs_deepspeed(base.workload) || base.engine.stage == 0) return;
  Variation smaller;
  if (base.engine.reduce_bucket.count() > kSmallBucket) {
    smaller.changes.push_back({Knob::reduce_bucket_size, Json(kSmallBucket)});
  }
  const Json prefetch = value_of(base, Knob::stage3_prefetch_bucket_size);
  if (base.engine.stage == 3 && prefetch.is_integer() && prefetch.as_integer() > kSmallBucket) {
    smaller.changes.push_back({Knob::stage3_prefetch_bucket_size, Json(kSmallBucket)});
  }
  if (!smaller.changes.empty()) changes.push_back(std::move(smaller));
}

void add_half_precision(const Plan& base, std::vector<Variation>& changes) {
  if (base.workload.precision != Precision::fp32) return;
  const bool bf16 = base.cluster.gpu.bf16_supported;
  const Precision half = bf16 ? Precision::bf16 : Precision::fp16;
  Variation change{{{ScenarioKey::precision, Json(name(kPrecisionNames, half))}}};
  if (runs_deepspeed(base.workload)) {
    change.changes.push_back({bf16 ? Knob::bf16_enabled : Knob::fp16_enabled, Json(true)});
  }
  changes.push_back(std::move(change));
}

void add_offload(const Plan& base, std::vector<Variation>& changes) {
  if (!runs_deepspeed(base.workload)) return;
  const Json cpu(name(OffloadDevice::cpu));
  Variation optimizer;
  // Below stage 1 there is nothing that could be offloaded.
  if (base.engine.stage == 0) {
    optimizer.changes.push_back({Knob::zero_stage, Json(std::int64_t{2})});
  }
  optimizer.changes.push_back({Knob::offload_optimizer_device, cpu});
  if (base.engine.offload_optimizer.device == OffloadDevice::none) changes.push_back(optimizer);
  if (base.engine.offload_parameter.device != OffloadDevice::none) return;
  changes.push_back({{{Knob::zero_stage, Json(std::int64_t{3})},
                      {Knob::offload_optimizer_device, cpu},
                      {Knob::offload_param_device, cpu}}});
}

void add_less_on_host(const Plan& base, std::vector<Variation>& changes) {
  if (!runs_deepspeed(base.workload)) return;
  const Json none(name(OffloadDevice::none));
  const Json nvme(name(OffloadDevice::nvme));
  const bool optimizer = base.engine.offload_optimizer.device == OffloadDevice::cpu;
  const bool parameters = base.engine.offload_parameter.device == OffloadDevice::cpu;
  if (base.engine.stage < 3) changes.push_back({{{Knob::zero_stage, Json(std::int64_t{3})}}});
  if (parameters) changes.push_back({{{Knob::offload_param_device, none}}});
  if (optimizer) changes.push_back({{{Knob::offload_optimizer_device, none}}});
  if (parameters && optimizer) {
    changes.push_back(
        {{{Knob::offload_optimizer_device, none}, {Knob::offload_param_device, none}}});
  }
  if (!base.cluster.node.nvme || base.engine.stage < 3) return;
  if (optimizer) changes.push_back({{{Knob::offload_optimizer_device, nvme}}});
  if (parameters && optimizer) {
    changes.push_back(
        {{{Knob::offload_optimizer_device, nvme}, {Knob::offload_param_device, nvme}}});
  }
}

void add_batch(const Plan& base, std::vector<Variation>& changes) {
  std::int64_t micro_batch = base.workload.micro_batch_size;
  std::int64_t accumulation = base.workload.gradient_accumulation_steps;
  while (micro_batch % 2 == 0) {
    micro_batch /= 2;
    accumulation *= 2;
    changes.push_back({{{ScenarioKey::micro_batch_size, Json(micro_batch)},
                        {ScenarioKey::gradient_accumulation_steps, Json(accumulation)}}});
  }
}

// One key once: a later change of it replaces the earlier one.
void join(Variation& all, const Variation& more) {
  for (const Change& change : more.changes) {
    const auto same = std::find_if(all.changes.begin(), all.changes.end(), [&](const Change& one) {
      return one.key == change.key;
    });
    if (same == all.changes.end()) {
      all.changes.push_back(change);
    } else {
      same->value = change.value;
    }
  }
}

bool shortens(const Variation& variation) {
  return std::any_of(variation.changes.begin(), variation.changes.end(), [](const Change& change) {
    const ScenarioKey* key = std::get_if<ScenarioKey>(&change.key);
    return key != nullptr && *key == ScenarioKey::sequence_length;
  });
}

// Growing sums of the single changes, without those that the run refuses.
std::vector<Variation> sums_of(const std::vector<TriedChange>& singles) {
  std::vector<Variation> sums;
  Variation all;
  for (const TriedChange& one : singles) {
    if (!one.outcome.result) continue;
    // Sequences are shortened last, and only by as much as is needed.
    join(all, one.variation);
    if (all.changes.size() > one.variation.changes.size() || shortens(one.variation)) {
      sums.push_back(all);
    }
  }
  return sums;
}

void keep(std::vector<Variation> variations, std::vector<VariedResult> outcomes, AvoidOom& answer) {
  for (std::size_t i = 0; i < variations.size(); ++i) {
    TriedChange tried{std::move(variations[i]), std::move(outcomes[i])};
    if (tried.fits()) answer.that_fit.push_back(answer.tried.size());
    answer.tried.push_back(std::move(tried));
  }
}

}  // namespace

std::vector<Variation> changes_against_oom(const Plan& base, Resource resource) {
  std::vector<Variation> changes;
  if (resource == Resource::host_memory) {
    add_less_on_host(base, changes);
    return changes;
  }
  add_buckets(base, changes);
  if (base.workload.activation_checkpointing != ActivationCheckpointing::full) {
    changes.push_back(
        {{{ScenarioKey::activation_checkpointing,
           Json(name(kActivationCheckpointingNames, ActivationCheckpointing::full))}}});
  }
  add_half_precision(base, changes);
  if (partitions(base)) {
    for (std::int64_t stage = base.engine.stage + 1; stage <= 3; ++stage) {
      changes.push_back({{{Knob::zero_stage, Json(stage)}}});
    }
  }
  add_batch(base, changes);
  add_offload(base, changes);
  constexpr std::int64_t kShortest = 256;
  std::int64_t length = base.workload.sequence_length;
  while (length % 2 == 0 && length / 2 >= kShortest) {
    length /= 2;
    changes.push_back({{{ScenarioKey::sequence_length, Json(length)}}});
  }
  return changes;
}

AvoidOom avoid_oom(const Variations& variations, Resource resource, const PredictOptions& options) {
  AvoidOom answer;
  std::vector<Variation> singles = changes_against_oom(variations.base(), resource);
  std::vector<VariedResult> outcomes = variations.simulate_all(singles, options);
  keep(std::move(singles), std::move(outcomes), answer);
  if (!answer.that_fit.empty()) return answer;
  std::vector<Variation> sums = sums_of(answer.tried);
  outcomes = variations.simulate_all(sums, options);
  keep(std::move(sums), std::move(outcomes), answer);
  return answer;
}

}  // namespace zeroplan
