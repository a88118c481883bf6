#include "tuner/remedy_catalogue.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/hardware/cluster.hpp"
#include "model/plan/trainer.hpp"
#include "tuner/headroom.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {

Json RemedyCatalogue::cpu() { return Json(name(OffloadDevice::cpu)); }
Json RemedyCatalogue::none() { return Json(name(OffloadDevice::none)); }

std::vector<RemedyCandidate> RemedyCatalogue::all() {
  if (subject_.lacks(Resource::gpu_memory)) {
    add_free();
    add_slower();
    add_other_training();
  }
  if (workload_.loading == Loading::every_rank) {
    add_loading(Loading::usual,
                "load under zero.Init, under FSDP by one rank of a node (--loading usual)");
  }
  if (subject_.lacks(Resource::host_memory)) add_less_on_host();
  if (subject_.lacks(Resource::host_memory) || free_) add_more_host_memory();
  add_more_nodes();
  sort();
  return std::move(found_);
}

RemedyCandidate& RemedyCatalogue::add(RemedyPrice price,
                                      MemoryCategory acts,
                                      Phrase text,
                                      std::vector<Change> changes) {
  Variation variation{std::move(changes), {}, {}};
  found_.push_back({price,
                    acts,
                    false,
                    {},
                    [text = std::move(text)](std::int64_t) { return text; },
                    [variation = std::move(variation)](std::int64_t) { return variation; }});
  return found_.back();
}

void RemedyCatalogue::sort() {
  const CategoryBytes& peak = subject_.result().gpu.breakdown_at_peak;
  std::stable_sort(
      found_.begin(), found_.end(), [&](const RemedyCandidate& a, const RemedyCandidate& b) {
        if (a.price != b.price) return a.price < b.price;
        if (a.decides != b.decides) return a.decides;
        if (a.price >= RemedyPrice::training) return false;
        return at(peak, a.acts) > at(peak, b.acts);
      });
}

void RemedyCatalogue::add_other_training() {
  add_half_weights();
  add_smaller_batch();
  add_shorter_sequences();
  if (workload_.method == Method::qlora || plan_.engine.embedded ||
      workload_.implementation != Implementation::hf || !plan_.stages.empty() ||
      plan_.degrees.tensor > 1) {
    return;
  }
  for (const Method method : {Method::lora, Method::qlora}) {
    if (method == workload_.method) continue;
    const std::string text(name(kMethodNames, method));
    add(RemedyPrice::training,
        MemoryCategory::optimizer_states,
        method == Method::lora ? "train adapters instead of all weights (--method lora)"
                               : "train adapters beside four-bit weights (--method qlora)",
        {{ScenarioKey::method, Json(text)}});
  }
}

// Weights in 16 bits where FSDP and DDP keep fp32 beside 16-bit arithmetic: Adam's states follow.
void RemedyCatalogue::add_half_weights() {
  const bool fsdp = workload_.engine == TrainingEngine::fsdp;
  if (!is_torch_engine(workload_.engine) || workload_.precision != Precision::bf16) return;
  if ((fsdp ? plan_.fsdp.storage_dtype : plan_.ddp.weight_dtype) != DType::fp32) return;
  add(RemedyPrice::training,
      MemoryCategory::optimizer_states,
      fsdp ? "train in bf16 without mixed precision (--weights-dtype pure-bf16): no fp32 copy of "
             "the weights"
           : "load the weights in bf16 (--weights-dtype bf16): gradients and Adam's states are in "
             "bf16, too",
      {{ScenarioKey::weights_dtype, Json(fsdp ? "pure-bf16" : "bf16")}});
}

// What is generated for a step lies there with all its numbers until the step is over.
void RemedyCatalogue::add_smaller_batch() {
  if (plan_.trainer == nullptr || !plan_.trainer->generates()) return;
  if (plan_.trainer->distils()) return;  // gkd generates for one micro-batch at a time
  const std::int64_t micro = workload_.micro_batch_size, ranks = plan_.degrees.data;
  const std::int64_t now = workload_.gradient_accumulation_steps;
  std::vector<std::int64_t> sizes;
  const bool groups = plan_.trainer->kind == TrainerKind::grpo;  // of completions, all whole
  const std::int64_t group =
      groups ? std::max<std::int64_t>(1, plan_.trainer->generation.completions) : 1;
  for (std::int64_t steps = 1; steps < now; ++steps) {
    if (micro * ranks * steps % group == 0) sizes.push_back(steps);
  }
  if (sizes.empty()) return;
  found_.push_back({RemedyPrice::training,
                    MemoryCategory::logits,
                    false,
                    std::move(sizes),
                    [=](std::int64_t steps) {
                      return phrase("{} sequences a step instead of {} (--mbs {} --gas {})",
                                    micro * steps * ranks,
                                    micro * now * ranks,
                                    micro,
                                    steps);
                    },
                    [micro](std::int64_t steps) {
                      return Variation{{{ScenarioKey::micro_batch_size, Json(micro)},
                                        {ScenarioKey::gradient_accumulation_steps, Json(steps)}},
                                       {},
                                       {}};
                    }});
}

void RemedyCatalogue::add_shorter_sequences() {
  const std::int64_t now = workload_.sequence_length;
  std::vector<std::int64_t> sizes;
  for (std::int64_t length = kSequenceQuantum; length < now; length += kSequenceQuantum) {
    if (length % workload_.sequence_parallel == 0) sizes.push_back(length);
  }
  if (sizes.empty()) return;
  found_.push_back({RemedyPrice::training,
                    MemoryCategory::activations,
                    false,
                    std::move(sizes),
                    [now](std::int64_t length) {
                      return phrase("shorten sequences to {} tokens (from {})", length, now);
                    },
                    [](std::int64_t length) {
                      return Variation{{{ScenarioKey::sequence_length, Json(length)}}, {}, {}};
                    }});
}

void RemedyCatalogue::add_more_host_memory() {
  constexpr std::int64_t kStep = 16;    // GiB
  constexpr std::int64_t kMost = 8192;  // GiB
  const Bytes now = plan_.cluster.node.host_memory.value;
  if (now.is_infinite() || one_pool()) return;
  std::vector<std::int64_t> sizes;
  for (std::int64_t gib = kMost; Bytes::gib(gib) > now; gib -= kStep) sizes.push_back(gib);
  if (sizes.empty()) return;
  found_.push_back({RemedyPrice::host_memory,
                    MemoryCategory::optimizer_states,
                    false,
                    std::move(sizes),
                    [now](std::int64_t gib) {
                      return phrase(
                          "have {} GiB of host memory per node instead of {} (--host-memory "
                          "{}GiB)",
                          gib,
                          std::llround(now.gib()),
                          gib);
                    },
                    [](std::int64_t gib) {
                      return Variation{{}, {}, Bytes::gib(gib)};
                    }});
}

void RemedyCatalogue::add_more_nodes() {
  constexpr std::int64_t kMostTimes = 64;
  const Cluster& cluster = plan_.cluster;
  const std::int64_t now = cluster.nodes;
  const std::int64_t each = cluster.gpus_per_node();
  const std::int64_t most = now * std::min(kMostTimes, kMostGpus / cluster.total_gpus());
  std::vector<std::int64_t> sizes;
  for (std::int64_t nodes = most; nodes > now; --nodes) sizes.push_back(nodes);
  if (sizes.empty()) return;
  found_.push_back({RemedyPrice::machines,
                    MemoryCategory::parameters,
                    false,
                    std::move(sizes),
                    [now, each](std::int64_t nodes) {
                      const std::int64_t more = (nodes - now) * each;
                      return Phrase("add ") + std::to_string(more) +
                             (more == 1 ? " GPU: " : " GPUs: ") + std::to_string(nodes) +
                             " nodes of " + std::to_string(each) + " instead of " +
                             std::to_string(now);
                    },
                    [](std::int64_t nodes) {
                      return Variation{{}, nodes, {}};
                    }});
}

std::vector<RemedyCandidate> remedy_candidates(const RemedySubject& subject) {
  return RemedyCatalogue(subject).all();
}

}  // namespace zeroplan::tuner
