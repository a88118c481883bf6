#include "tuner/remedy_catalogue.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/families/hf_config.hpp"
#include "model/hardware/cluster.hpp"
#include "model/implementations/hf_liger.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/predict/host_memory.hpp"
#include "model/release_table.hpp"
#include "model/releases.hpp"
#include "model/step/generation.hpp"
#include "model/step/graph_options.hpp"
#include "tuner/headroom.hpp"
#include "tuner/packages.hpp"
#include "tuner/remedy_subject.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {
namespace {

// Buckets of a tenth of DeepSpeed's default still hide latency on every link we know.
constexpr std::int64_t kSmallBucket = 50'000'000;
constexpr std::int64_t kSpareSubGroup = 10'000'000;

Json cpu() { return Json(name(OffloadDevice::cpu)); }
Json none() { return Json(name(OffloadDevice::none)); }

Json evaluation_json(const EvaluationSettings& settings) {
  Json inside = Json::object({{"batch_size", settings.batch_size}});
  if (settings.accumulation_steps > 0) inside["accumulation_steps"] = settings.accumulation_steps;
  if (settings.samples > 0) inside["samples"] = settings.samples;
  return Json::object({{settings.keeps_logits ? "logits" : "loss", inside}});
}

// The trainer as it was said, with one setting changed.
Json trainer_with(const Json& said, const char* key, Json value) {
  const std::string trainer = said.is_string() ? said.as_string() : said.members().front().first;
  Json settings = said.is_string() ? Json::object() : said.members().front().second;
  settings[key] = std::move(value);
  return Json::object({{trainer, settings}});
}

// vLLM holds at least the weights in 16 bits, and the keys and values of one sequence. Its
// context, its graphs and its activations come on top.
Bytes least_server_bytes(const Plan& plan) {
  const TransformerShape& shape = plan.model->shape;
  const std::int64_t cached =
      2 * shape.layers * shape.kv_heads * shape.head_dim * plan.workload.sequence_length;
  const Elements held = count_parameters(*plan.model).total + Elements::of(cached);
  return held * DType::bf16 / plan.trainer->generation.tensor_parallel;
}

// resolve() says why not.
bool has_sequence_ranks(const Plan& plan, std::int64_t ranks) {
  const TransformerShape& shape = plan.model->shape;
  return has_ulysses(*plan.model, plan.workload.attention) && shape.heads % ranks == 0 &&
         (shape.kv_heads % ranks == 0 || ranks % shape.kv_heads == 0) &&
         plan.workload.sequence_length % ranks == 0;
}

class Catalogue {
 public:
  explicit Catalogue(const RemedySubject& subject)
      : subject_(subject),
        plan_(subject.plan()),
        workload_(plan_.workload),
        free_(subject.chooses_strategy()),
        deepspeed_(runs_deepspeed(plan_.workload)),
        sharded_(plan_.engine.stage == 3 && deepspeed_) {}

  std::vector<RemedyCandidate> all() {
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

 private:
  bool says(ScenarioKey key) const { return subject_.scenario().find(key) != nullptr; }
  bool has_file() const { return says(ScenarioKey::ds_config); }
  const Json& trainer_said() const { return subject_.scenario().find(ScenarioKey::trainer)->value; }

  // --- how candidates are made

  RemedyCandidate& add(RemedyPrice price,
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

  void sort() {
    const CategoryBytes& peak = subject_.result().gpu.breakdown_at_peak;
    std::stable_sort(
        found_.begin(), found_.end(), [&](const RemedyCandidate& a, const RemedyCandidate& b) {
          if (a.price != b.price) return a.price < b.price;
          if (a.decides != b.decides) return a.decides;
          if (a.price >= RemedyPrice::training) return false;
          return at(peak, a.acts) > at(peak, b.acts);
        });
  }

  // --- what costs nothing

  void add_free() {
    add_evaluation();
    add_fused_loss();
    add_attention();
    add_release();
    add_reentrance();
    add_expandable_segments();
    add_no_tensor_ranks();
    add_loading_on_host();
    add_sixteen_bit_copy();
    add_no_accumulation();
    add_buckets();
    add_engine();
    add_trainer_alone();
  }

  void add_fused_loss() {
    const bool can = !says(ScenarioKey::fused_loss) && !workload_.fused_loss &&
                     runs_packages(plan_.cluster.gpu) && !plan_.engine.embedded &&
                     calls_fused_loss(plan_) && workload_.implementation == Implementation::hf &&
                     workload_.precision != Precision::fp32 && hf::liger_has_loss(*plan_.model);
    if (!can) return;
    add(RemedyPrice::nothing,
        MemoryCategory::logits,
        "take a loss that never holds all logits: liger-kernel (--fused-loss true)",
        {{ScenarioKey::fused_loss, Json(true)}});
  }

  void add_attention() {
    if (plan_.engine.embedded || workload_.implementation != Implementation::hf) return;
    const Scenario& asked = subject_.scenario();
    if (has_fused_attention(asked, plan_, workload_.attention)) return;
    for (const Attention kind : {Attention::sdpa, Attention::flash}) {
      if (kind == workload_.attention || !has_fused_attention(asked, plan_, kind)) continue;
      if (kind == Attention::flash && !runs_packages(plan_.cluster.gpu)) continue;
      add(RemedyPrice::nothing,
          MemoryCategory::activations,
          kind == Attention::sdpa ? "take attention that keeps no scores (--attention sdpa)"
                                  : "take attention that keeps no scores: flash-attn (--attention "
                                    "flash)",
          {{ScenarioKey::attention, Json(name(kAttentionNames, kind))}});
      return;
    }
  }

  bool recomputes() const {
    return free_ || workload_.activation_checkpointing != ActivationCheckpointing::none;
  }

  // A release that keeps weights longer than others do.
  void add_release() {
    const auto release =
        [&](ScenarioKey key, const char* package, const Version& other, const Version& now) {
          std::vector<Change> changes;
          std::string flags;
          const auto take = [&](ScenarioKey one, const Version& version) {
            changes.push_back({one, Json(to_string(version))});
            flags +=
                (flags.empty() ? "" : " ") + std::string(info(one).flag) + " " + to_string(version);
          };
          take(key, other);
          // One release alone would bring the others of its time.
          if (!says(ScenarioKey::transformers_version)) {
            take(ScenarioKey::transformers_version, plan_.software.transformers);
          }
          add(RemedyPrice::nothing,
              MemoryCategory::parameters,
              phrase("{} {} instead of {} ({})", package, to_string(other), to_string(now), flags),
              std::move(changes));
        };
    const Software& software = plan_.software;
    if (deepspeed_ && (sharded_ || free_) && recomputes() &&
        plan_.engine.acts(ReleaseRule::misses_recomputed_ends)) {
      release(ScenarioKey::deepspeed_version,
              "DeepSpeed",
              release_row(ReleaseRule::misses_recomputed_ends).until,
              software.deepspeed_release);
    }
    if (frozen_weights_held(plan_).spared_by_release) {
      release(ScenarioKey::deepspeed_version, "DeepSpeed", {0, 18, 0}, software.deepspeed_release);
    }
    if (workload_.engine == TrainingEngine::fsdp && workload_.fsdp_version == 2 &&
        workload_.method == Method::lora &&
        software.accelerate_acts(ReleaseRule::casts_frozen_for_fully_shard)) {
      release(ScenarioKey::accelerate_version,
              "accelerate",
              release_row(ReleaseRule::casts_frozen_for_fully_shard).until,
              software.accelerate);
    }
  }

  void add_reentrance() {
    if (!deepspeed_ || plan_.engine.embedded || !recomputes() || forces_reentrance(plan_)) return;
    // `fit` decides where nobody said.
    if (free_ ? !says(ScenarioKey::checkpoint_reentrant) : !sharded_) return;
    const bool other = !workload_.checkpoint_reentrant;
    const bool may_spare = other ? plan_.engine.acts(ReleaseRule::misses_recomputed_ends) ||
                                       frozen_weights_held(plan_).by_products
                                 : workload_.method == Method::lora;
    if (!may_spare) return;
    add(RemedyPrice::nothing,
        MemoryCategory::parameters,
        other ? "checkpoint with use_reentrant=True (--checkpoint-reentrant true)"
              : "checkpoint with use_reentrant=False (--checkpoint-reentrant false)",
        {{ScenarioKey::checkpoint_reentrant, Json(other)}});
  }

  void add_expandable_segments() {
    if (!may_expand_segments(plan_)) return;
    add(RemedyPrice::nothing,
        MemoryCategory::fragmentation,
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (--expandable-segments true)",
        {{ScenarioKey::expandable_segments, Json(true)}});
  }

  // ZeRO shards over AutoTP's ranks, too, where they are no tensor ranks, and stage 3 can be taken.
  void add_no_tensor_ranks() {
    if (plan_.degrees.autotp <= 1 || !says(ScenarioKey::tensor_parallel)) return;
    add(RemedyPrice::nothing,
        MemoryCategory::optimizer_states,
        "no tensor-parallel ranks (--tensor-parallel 1)",
        {{ScenarioKey::tensor_parallel, Json(1)}});
  }

  void add_evaluation() {
    if (plan_.evaluation == nullptr) return;
    const EvaluationSettings now = *plan_.evaluation;
    const auto one = [&](const EvaluationSettings& settings, const Phrase& change) {
      add(RemedyPrice::nothing,
          MemoryCategory::logits,
          phrase("evaluate with {}", change),
          {{ScenarioKey::evaluation, evaluation_json(settings)}})
          .decides = evaluation_decides();
    };
    EvaluationSettings tried = now;
    tried.keeps_logits = false;
    if (now.keeps_logits && now.accumulation_steps != 1) {
      EvaluationSettings moved = now;
      moved.accumulation_steps = 1;
      one(moved, "eval_accumulation_steps 1");
    }
    // Kept logits are as many in batches of any size: a smaller one comes on top.
    const std::int64_t most = now.keeps_logits ? now.batch_size : now.batch_size - 1;
    if (most == 0) return;
    std::vector<std::int64_t> sizes;
    for (std::int64_t rows = 1; rows <= most; ++rows) sizes.push_back(rows);
    found_.push_back(
        {RemedyPrice::nothing,
         MemoryCategory::logits,
         evaluation_decides(),
         std::move(sizes),
         [now](std::int64_t rows) {
           const Phrase size = phrase("per_device_eval_batch_size {}", rows);
           return phrase("evaluate with {}",
                         !now.keeps_logits        ? size
                         : rows == now.batch_size ? Phrase("prediction_loss_only")
                                                  : phrase("{} and prediction_loss_only", size));
         },
         [tried](std::int64_t rows) {
           EvaluationSettings smaller = tried;
           smaller.batch_size = rows;
           return Variation{{{ScenarioKey::evaluation, evaluation_json(smaller)}}, {}, {}};
         }});
  }

  bool evaluation_decides() const {
    const std::vector<Limit>& limits = subject_.result().limits;
    return !limits.empty() && limits.back().largest_term.english().starts_with("evaluation");
  }

  // A checkpoint that zero.Init does not partition as it is read.
  void add_sixteen_bit_copy() {
    const bool packed = quantized_format(*plan_.model) == kMxfp4Checkpoint;
    const Json copy = packed ? model_in_sixteen_bits(subject_.scenario()) : Json();
    if (copy.is_null() || workload_.method == Method::qlora) return;
    const StepResult& result = subject_.result();
    const Phase peak =
        subject_.lacks(Resource::gpu_memory) ? result.gpu.peak_phase : result.host.peak_phase;
    add(RemedyPrice::nothing,
        MemoryCategory::parameters,
        "train from a copy in 16 bits: from_pretrained and save_pretrained, once",
        {{ScenarioKey::model, copy}})
        .decides = peak == Phase::load || peak == Phase::init;
  }

  // Four-bit weights that wait on the host until FSDP shards them.
  void add_loading_on_host() {
    const bool fsdp = workload_.engine == TrainingEngine::fsdp;
    if (workload_.method != Method::qlora || (fsdp && !plan_.loads_whole)) return;
    if (!fsdp && !may_change_engine()) return;
    constexpr const char* kOnHost = "{\"\": \"cpu\"}";
    std::vector<Change> changes;
    if (!fsdp) changes = changes_to(TrainingEngine::fsdp);
    changes.push_back({ScenarioKey::load_device, cpu()});
    const Phase peak = subject_.result().gpu.peak_phase;
    add(RemedyPrice::nothing,
        MemoryCategory::parameters,
        fsdp ? phrase("load the four-bit weights on the host: device_map={} in from_pretrained "
                      "(--load-device cpu)",
                      kOnHost)
             : phrase("train under FSDP with the four-bit weights loaded on the host: "
                      "device_map={} in from_pretrained (--engine fsdp --load-device cpu)",
                      kOnHost),
        std::move(changes))
        .decides = peak == Phase::load || peak == Phase::init;
  }

  // Gradients that FSDP accumulates are whole on every GPU.
  void add_no_accumulation() {
    const std::int64_t steps = workload_.gradient_accumulation_steps;
    if (workload_.engine != TrainingEngine::fsdp || steps == 1 || workload_.sync_each_batch) return;
    const std::int64_t now = workload_.micro_batch_size * plan_.degrees.data;
    add(RemedyPrice::nothing,
        MemoryCategory::gradients,
        phrase("no gradient accumulation, so that gradients are sharded at once (--gas 1): {} "
               "sequences a step instead of {}",
               now,
               now * steps),
        {{ScenarioKey::micro_batch_size, Json(workload_.micro_batch_size)},
         {ScenarioKey::gradient_accumulation_steps, Json(std::int64_t{1})}});
  }

  void add_buckets() {
    if (!deepspeed_ || plan_.engine.embedded || plan_.engine.stage == 0) return;
    if (free_ && !has_file()) return;  // sized for the model
    std::vector<Change> changes;
    if (plan_.engine.reduce_bucket.count() > kSmallBucket) {
      changes.push_back({Knob::reduce_bucket_size, Json(kSmallBucket)});
    }
    const Json prefetch = value_of(plan_, Knob::stage3_prefetch_bucket_size);
    if (sharded_ && prefetch.is_integer() && prefetch.as_integer() > kSmallBucket) {
      changes.push_back({Knob::stage3_prefetch_bucket_size, Json(kSmallBucket)});
    }
    if (changes.empty()) return;
    Phrase text = changes.size() == 2
                      ? "buckets of 5e7 elements (reduce_bucket_size, stage3_prefetch_bucket_size)"
                  : std::get<Knob>(changes.front().key) == Knob::reduce_bucket_size
                      ? "buckets of 5e7 elements (reduce_bucket_size)"
                      : "buckets of 5e7 elements (stage3_prefetch_bucket_size)";
    add(RemedyPrice::nothing,
        MemoryCategory::communication_buffers,
        std::move(text),
        std::move(changes));
  }

  bool may_change_engine() const {
    return plan_.trainer == nullptr && plan_.stages.empty() && plan_.degrees.tensor == 1 &&
           plan_.degrees.sequence == 1 && workload_.implementation == Implementation::hf &&
           !plan_.engine.embedded && plan_.degrees.data > 1;
  }

  // Another engine, sharding all.
  std::vector<Change> changes_to(TrainingEngine engine) const {
    std::vector<Change> changes = {{ScenarioKey::engine, Json(name(kTrainingEngineNames, engine))}};
    if (!free_) changes.push_back({Knob::zero_stage, Json(std::int64_t{3})});
    return changes;
  }

  void add_engine() {
    if (!may_change_engine()) return;
    const auto under = [&](TrainingEngine engine, Phrase text) {
      add(RemedyPrice::nothing, MemoryCategory::parameters, std::move(text), changes_to(engine));
    };
    if (workload_.engine != TrainingEngine::fsdp && workload_.method != Method::full) {
      under(TrainingEngine::fsdp,
            free_ ? "train under FSDP (--engine fsdp)"
                  : "train under FSDP (--engine fsdp --stage 3)");
    }
    if (workload_.engine != TrainingEngine::deepspeed) {
      under(TrainingEngine::deepspeed,
            free_ ? "train under DeepSpeed (--engine deepspeed)"
                  : "train under DeepSpeed's stage 3 (--engine deepspeed --stage 3)");
    }
  }

  // The Trainer alone holds no flat buffers and, in full training, no fp32 copies.
  void add_trainer_alone() {
    if (!may_leave_deepspeed(subject_.scenario(), plan_) || has_file()) return;
    std::vector<Change> changes = {{ScenarioKey::engine, Json("ddp")}};
    const bool full = workload_.method == Method::full;
    add(full ? RemedyPrice::training : RemedyPrice::nothing,
        MemoryCategory::optimizer_states,
        full ? "train by the Trainer without DeepSpeed, which makes fp32 copies of a 16-bit "
               "checkpoint (--engine ddp)"
             : "train by the Trainer without DeepSpeed (--engine ddp)",
        std::move(changes));
  }

  // --- what costs speed

  void add_slower() {
    add_generation_in_parts();
    add_colocated_server();
    add_sequence_ranks();
    add_checkpointing();
    add_precision();
    add_sync();
    add_stages();
    add_micro_batch();
    add_activation_offload();
    add_offload();
  }

  void add_checkpointing() {
    if (workload_.activation_checkpointing == ActivationCheckpointing::full) return;
    if (plan_.trainer != nullptr && plan_.trainer->trains_values()) return;
    if (free_ && !says(ScenarioKey::activation_checkpointing)) return;
    add(RemedyPrice::speed,
        MemoryCategory::activations,
        "use full activation checkpointing (--ckpt full)",
        {{ScenarioKey::activation_checkpointing,
          Json(name(kActivationCheckpointingNames, ActivationCheckpointing::full))}});
  }

  // Weights gathered one by one while the policy generates, where all are there at once.
  void add_generation_in_parts() {
    if (!generates_itself(plan_) || (!free_ && !sharded_)) return;
    if (!plan_.trainer->generation.gathers_model || plan_.trainer->distils()) return;
    const Json trainer = trainer_with(trainer_said(), "gathers_model", Json(false));
    add(RemedyPrice::speed,
        MemoryCategory::parameters,
        phrase(
            "gather the weights part by part while it generates: ds3_gather_for_generation=False "
            "(--trainer '{}')",
            trainer.dump()),
        {{ScenarioKey::trainer, trainer}});
  }

  // vLLM beside the training: its share while it does not generate, and how large that is.
  void add_colocated_server() {
    if (server_share(plan_) == Bytes::zero()) return;
    const GenerationSettings& now = plan_.trainer->generation;
    if (!now.sleeps) {
      const Json trainer = trainer_with(trainer_said(), "sleeps", Json(true));
      add(RemedyPrice::speed,
          MemoryCategory::parameters,
          phrase("let vLLM give its memory back while the model trains: vllm_enable_sleep_mode, "
                 "sleep_level 1 of ms-swift (--trainer '{}')",
                 trainer.dump()),
          {{ScenarioKey::trainer, trainer}})
          .decides = true;
    }
    std::vector<std::int64_t> shares;  // in percent
    constexpr std::int64_t kStep = 5;
    for (std::int64_t share = kStep; static_cast<double>(share) < 100.0 * now.memory_share - 0.5;
         share += kStep) {
      if (plan_.cluster.gpu.memory.value * share / 100 >= least_server_bytes(plan_)) {
        shares.push_back(share);
      }
    }
    if (shares.empty()) return;
    const auto trainer_of = [said = trainer_said()](std::int64_t share) {
      return trainer_with(said, "memory_share", Json(static_cast<double>(share) / 100.0));
    };
    found_.push_back({RemedyPrice::speed,
                      MemoryCategory::parameters,
                      true,
                      std::move(shares),
                      [trainer_of, before = now.memory_share](std::int64_t share) {
                        return phrase(
                            "vllm_gpu_memory_utilization {:.2f} instead of {:.2f}, which "
                            "holds vLLM's weights and a sequence's keys and values "
                            "(--trainer '{}')",
                            static_cast<double>(share) / 100.0,
                            before,
                            trainer_of(share).dump());
                      },
                      [trainer_of](std::int64_t share) {
                        return Variation{{{ScenarioKey::trainer, trainer_of(share)}}, {}, {}};
                      }});
  }

  // Ulysses puts each sequence on several GPUs, where the batch cannot be smaller.
  void add_sequence_ranks() {
    const bool may = deepspeed_ && plan_.trainer == nullptr && plan_.stages.empty() &&
                     plan_.degrees.tensor == 1 && plan_.degrees.sequence == 1 &&
                     !plan_.engine.embedded && !says(ScenarioKey::sequence_parallel);
    if (!may || (!free_ && workload_.micro_batch_size > 1)) return;
    const CategoryBytes& peak = subject_.result().gpu.breakdown_at_peak;
    const Bytes of_tokens =
        at(peak, MemoryCategory::activations) + at(peak, MemoryCategory::logits);
    if (of_tokens * 2 < subject_.result().gpu.peak_total) return;
    std::vector<std::int64_t> sizes;
    for (std::int64_t ranks = plan_.degrees.data; ranks > 1; --ranks) {
      if (plan_.degrees.data % ranks == 0 && has_sequence_ranks(plan_, ranks)) {
        sizes.push_back(ranks);
      }
    }
    if (sizes.empty()) return;
    const std::int64_t steps = workload_.gradient_accumulation_steps;
    const auto said = [steps, free = free_](std::int64_t ranks) {
      return free ? std::string() : " --gas " + std::to_string(steps * ranks);
    };
    found_.push_back({RemedyPrice::speed,
                      logits_decide() ? MemoryCategory::logits : MemoryCategory::activations,
                      false,
                      std::move(sizes),
                      [said](std::int64_t ranks) {
                        return phrase(
                            "share each sequence among {} GPUs: DeepSpeed-Ulysses "
                            "(--sequence-parallel {}{})",
                            ranks,
                            ranks,
                            said(ranks));
                      },
                      [steps, free = free_](std::int64_t ranks) {
                        Variation change{{{ScenarioKey::sequence_parallel, Json(ranks)}}, {}, {}};
                        if (free) return change;
                        change.changes.push_back(
                            {ScenarioKey::gradient_accumulation_steps, Json(steps * ranks)});
                        return change;
                      }});
  }

  void add_precision() {
    if (workload_.precision != Precision::fp32) return;
    const bool bf16 = plan_.cluster.gpu.bf16_supported;
    std::vector<Change> changes = {{ScenarioKey::precision, Json(bf16 ? "bf16" : "fp16")}};
    if (deepspeed_ && has_file()) {
      changes.push_back({bf16 ? Knob::bf16_enabled : Knob::fp16_enabled, Json(true)});
    }
    add(RemedyPrice::speed,
        MemoryCategory::activations,
        phrase("train in {} instead of fp32 (--precision {})",
               bf16 ? "bf16" : "fp16",
               bf16 ? "bf16" : "fp16"),
        std::move(changes));
  }

  void add_sync() {
    if (workload_.engine != TrainingEngine::fsdp || workload_.gradient_accumulation_steps == 1 ||
        workload_.sync_each_batch || workload_.frontend != Frontend::hf_trainer ||
        plan_.software.transformers_act(ReleaseRule::ignores_sync_each_batch)) {
      return;
    }
    add(RemedyPrice::speed,
        MemoryCategory::gradients,
        "reduce gradients in every micro-step: sync_each_batch (--sync-each-batch true)",
        {{ScenarioKey::sync_each_batch, Json(true)}});
  }

  void add_stages() {
    if (free_ || !deepspeed_ || plan_.degrees.partition() == 1 || !plan_.stages.empty()) return;
    for (std::int64_t stage = plan_.engine.stage + 1; stage <= 3; ++stage) {
      add(RemedyPrice::speed,
          stage == 3   ? MemoryCategory::parameters
          : stage == 2 ? MemoryCategory::gradients
                       : MemoryCategory::optimizer_states,
          phrase("ZeRO stage {} instead of {} (--stage {})", stage, plan_.engine.stage, stage),
          {{Knob::zero_stage, Json(stage)}});
    }
  }

  // The same batch in smaller parts.
  void add_micro_batch() {
    const std::int64_t now = workload_.micro_batch_size;
    const std::int64_t steps = workload_.gradient_accumulation_steps;
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = 1; size < now; ++size) {
      if (now * steps % size == 0) sizes.push_back(size);
    }
    if (sizes.empty()) return;
    found_.push_back({RemedyPrice::speed,
                      logits_decide() ? MemoryCategory::logits : MemoryCategory::activations,
                      false,
                      std::move(sizes),
                      [now, steps](std::int64_t size) {
                        return phrase("use micro-batch {} instead of {} (--mbs {} --gas {})",
                                      size,
                                      now,
                                      size,
                                      now * steps / size);
                      },
                      [now, steps](std::int64_t size) {
                        return Variation{
                            {{ScenarioKey::micro_batch_size, Json(size)},
                             {ScenarioKey::gradient_accumulation_steps, Json(now * steps / size)}},
                            {},
                            {}};
                      }});
  }

  bool logits_decide() const {
    const CategoryBytes& peak = subject_.result().gpu.breakdown_at_peak;
    return at(peak, MemoryCategory::logits) > at(peak, MemoryCategory::activations);
  }

  void add_activation_offload() {
    if (workload_.activation_offload != ActivationOffload::none || one_pool()) return;
    if (workload_.activation_checkpointing != ActivationCheckpointing::full) return;
    if (plan_.trainer != nullptr || !plan_.stages.empty() || plan_.engine.embedded) return;
    add(RemedyPrice::speed,
        MemoryCategory::activations,
        "keep the checkpoints of activations in host memory (--activation-offload cpu)",
        {{ScenarioKey::activation_offload, cpu()}});
  }

  // Nothing is gained where host and GPU have one pool.
  bool one_pool() const { return plan_.cluster.gpu.shares_host_memory(); }

  void add_offload() {
    if (one_pool()) return;
    if (free_ || !deepspeed_ || plan_.engine.embedded || !plan_.stages.empty()) {
      add_fsdp_offload();
      return;
    }
    // Below stage 1 there is nothing that could be offloaded.
    std::vector<Change> optimizer;
    if (plan_.engine.stage == 0) {
      optimizer.push_back({Knob::zero_stage, Json(std::int64_t{2})});
    }
    optimizer.push_back({Knob::offload_optimizer_device, cpu()});
    if (plan_.engine.offload_optimizer.device == OffloadDevice::none) {
      add(RemedyPrice::speed,
          MemoryCategory::optimizer_states,
          "offload the optimizer to the CPU (--offload-optimizer cpu)",
          std::move(optimizer));
    }
    if (plan_.engine.offload_parameter.device != OffloadDevice::none) return;
    if (plan_.engine.offload_optimizer.device == OffloadDevice::none) {
      add(RemedyPrice::speed,
          MemoryCategory::parameters,
          "offload the weights to the CPU (--stage 3 --offload-param cpu)",
          {{Knob::zero_stage, Json(std::int64_t{3})}, {Knob::offload_param_device, cpu()}});
    }
    add(RemedyPrice::speed,
        MemoryCategory::parameters,
        "offload optimizer and weights to the CPU (--stage 3 --offload-optimizer cpu "
        "--offload-param cpu)",
        {{Knob::zero_stage, Json(std::int64_t{3})},
         {Knob::offload_optimizer_device, cpu()},
         {Knob::offload_param_device, cpu()}});
  }

  void add_fsdp_offload() {
    const bool fsdp = workload_.engine == TrainingEngine::fsdp;
    const bool may =
        fsdp ? !plan_.fsdp.offload : workload_.method == Method::qlora && may_change_engine();
    if (free_ || !may) return;
    std::vector<Change> changes;
    if (!fsdp) {
      changes = changes_to(TrainingEngine::fsdp);
      changes.push_back({ScenarioKey::load_device, cpu()});
    }
    changes.push_back({Knob::offload_param_device, cpu()});  // behind the stage that has it
    add(RemedyPrice::speed,
        MemoryCategory::parameters,
        fsdp ? "offload shards and optimizer to the CPU (--offload-param cpu)"
             : "train under FSDP with the four-bit weights on the host (--engine fsdp --stage 3 "
               "--load-device cpu --offload-param cpu)",
        std::move(changes));
  }

  // --- what trains otherwise

  void add_other_training() {
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
  void add_half_weights() {
    const bool fsdp = workload_.engine == TrainingEngine::fsdp;
    if (!is_torch_engine(workload_.engine) || workload_.precision != Precision::bf16) return;
    if ((fsdp ? plan_.fsdp.storage_dtype : plan_.ddp.weight_dtype) != DType::fp32) return;
    add(RemedyPrice::training,
        MemoryCategory::optimizer_states,
        fsdp
            ? "train in bf16 without mixed precision (--weights-dtype pure-bf16): no fp32 copy of "
              "the weights"
            : "load the weights in bf16 (--weights-dtype bf16): gradients and Adam's states are in "
              "bf16, too",
        {{ScenarioKey::weights_dtype, Json(fsdp ? "pure-bf16" : "bf16")}});
  }

  // What is generated for a step lies there with all its numbers until the step is over.
  void add_smaller_batch() {
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

  void add_shorter_sequences() {
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

  // --- what the host holds

  void add_loading(Loading loading, Phrase text) {
    add(RemedyPrice::nothing,
        MemoryCategory::parameters,
        std::move(text),
        {{ScenarioKey::loading, Json(name(kLoadingNames, loading))}})
        .decides = true;
  }

  // While weights are loaded, or gathered to be saved.
  void add_lighter_loading() {
    const Phase peak = subject_.result().host.peak_phase;
    const Knob gathers = Knob::stage3_gather_16bit_weights_on_model_save;
    if (peak == Phase::save && sharded_ && plan_.engine.stage3.gather_16bit_weights_on_save) {
      add(RemedyPrice::nothing,
          MemoryCategory::parameters,
          "gather no 16-bit weights to save them: zero_to_fp32.py makes them of a checkpoint "
          "(--stage3-gather-16bit-weights-on-model-save false)",
          {{gathers, Json(false)}})
          .decides = true;
    }
    if (peak != Phase::load) return;
    if (!subject_.lacks(Resource::gpu_memory)) add_sixteen_bit_copy();  // mapped to its files
    if (converts_while_loading(plan_)) {
      add_loading(Loading::converted,
                  "load a copy that has the experts as the class does: "
                  "save_pretrained(save_original_format=False), once (--loading converted)");
    }
    if (fills_while_loading(plan_)) {
      add_loading(Loading::every_rank,
                  "load on every rank, which maps the files: fsdp_cpu_ram_efficient_loading: false "
                  "(--loading every-rank)");
    }
    if (workload_.precision == Precision::fp16 && plan_.cluster.gpu.bf16_supported && !has_file()) {
      add(RemedyPrice::training,
          MemoryCategory::parameters,
          "train in bf16, in which the weights stay mapped to their files (--precision bf16)",
          {{ScenarioKey::precision, Json("bf16")}});
    }
  }

  void add_less_on_host() {
    add_lighter_loading();
    const bool converts =
        subject_.result().host.peak_phase == Phase::load && converts_while_loading(plan_);
    // Among what costs nothing where the GPU's memory is short, too.
    if (!subject_.lacks(Resource::gpu_memory) && (converts || !deepspeed_)) add_engine();
    if (!deepspeed_ || plan_.engine.embedded) return;
    const bool optimizer = plan_.engine.offload_optimizer.device == OffloadDevice::cpu;
    const OffloadDevice weights_on = plan_.engine.offload_parameter.device;
    const bool weights = weights_on == OffloadDevice::cpu;
    const auto host = [&](RemedyPrice price, Phrase text, std::vector<Change> changes) {
      add(price, MemoryCategory::optimizer_states, std::move(text), std::move(changes));
    };
    add_leaner_offload(optimizer, weights);
    if (free_) return;
    if (weights_on == OffloadDevice::nvme) {
      std::vector<Change> buffers;
      add_buffers_for_weights(buffers);
      host(RemedyPrice::nothing,
           phrase("larger buffers for weights on NVMe, none kept for reuse "
                  "(--offload-param.buffer-size {} --stage3-max-reuse-distance 0)",
                  enough_for_a_weight()),
           std::move(buffers));
      host(RemedyPrice::nothing,
           "no offload of the weights: the GPUs have the room",
           {{Knob::offload_param_device, none()}});
      host(RemedyPrice::nothing,
           "weights on the CPU (--offload-param cpu)",
           {{Knob::offload_param_device, cpu()}});
    }
    if (plan_.engine.stage < 3) {
      host(RemedyPrice::speed,
           "ZeRO stage 3, which loads partitioned (--stage 3)",
           {{Knob::zero_stage, Json(std::int64_t{3})}});
    }
    if (optimizer) {
      host(RemedyPrice::nothing,
           "no offload: the GPUs have the room",
           {{Knob::offload_optimizer_device, none()}, {Knob::offload_param_device, none()}});
    }
    if (weights) {
      host(RemedyPrice::nothing,
           "no offload of the weights: the GPUs have the room",
           {{Knob::offload_param_device, none()}});
    }
    if (!plan_.cluster.node.nvme || plan_.engine.stage < 3 || !optimizer) return;
    const Json nvme(name(OffloadDevice::nvme));
    host(RemedyPrice::speed,
         "the optimizer on NVMe (--offload-optimizer nvme)",
         {{Knob::offload_optimizer_device, nvme}});
    if (weights) {
      host(RemedyPrice::speed,
           "the optimizer on NVMe, the weights on the GPUs (--offload-optimizer nvme "
           "--offload-param none)",
           {{Knob::offload_optimizer_device, nvme}, {Knob::offload_param_device, none()}});
      std::vector<Change> both = {{Knob::offload_optimizer_device, nvme},
                                  {Knob::offload_param_device, nvme}};
      add_buffers_for_weights(both);
      host(RemedyPrice::speed,
           phrase("optimizer and weights on NVMe (--offload-optimizer nvme --offload-param nvme "
                  "--offload-param.buffer-size {} --stage3-max-reuse-distance 0)",
                  enough_for_a_weight()),
           std::move(both));
    }
  }

  // One buffer holds the largest partition; what is kept for reuse keeps its buffer, of the few
  // that there are.
  std::int64_t enough_for_a_weight() const {
    return std::max(plan_.engine.offload_parameter.buffer_size.count(),
                    largest_parameter(*plan_.model));
  }
  void add_buffers_for_weights(std::vector<Change>& changes) const {
    changes.push_back({Knob::offload_param_buffer_size, Json(enough_for_a_weight())});
    changes.push_back({Knob::stage3_max_reuse_distance, Json(std::int64_t{0})});
  }

  // A file that says how what is offloaded lies: `fit` decides the rest by itself.
  void add_leaner_offload(bool optimizer, bool weights) {
    if (free_ && !has_file()) return;
    if (!free_ && !optimizer && !weights) return;
    const bool divides = plan_.engine.stage == 3 || free_;
    const auto pageable = [&] {
      std::vector<Change> changes;
      if (optimizer || free_) changes.push_back({Knob::offload_optimizer_pin_memory, Json(false)});
      if (weights || free_) changes.push_back({Knob::offload_param_pin_memory, Json(false)});
      return changes;
    };
    const Change small{Knob::sub_group_size, Json(kSpareSubGroup)};
    const auto one = [&](Phrase text, std::vector<Change> changes) {
      add(RemedyPrice::speed,
          MemoryCategory::optimizer_states,
          std::move(text),
          std::move(changes));
    };
    one("offload with pin_memory false", pageable());
    if (!divides) return;
    one("use a sub_group_size of 1e7", {small});
    std::vector<Change> both = pageable();
    both.push_back(small);
    one("offload with pin_memory false and a sub_group_size of 1e7", std::move(both));
  }

  // --- what has to be bought

  void add_more_host_memory() {
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

  void add_more_nodes() {
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

  const RemedySubject& subject_;
  const Plan& plan_;
  const Workload& workload_;
  bool free_;
  bool deepspeed_;
  bool sharded_;
  std::vector<RemedyCandidate> found_;
};

}  // namespace

std::vector<RemedyCandidate> remedy_candidates(const RemedySubject& subject) {
  return Catalogue(subject).all();
}

}  // namespace zeroplan::tuner
