#include <string>
#include <utility>

#include "model/families/hf_config.hpp"
#include "model/implementations/hf_liger.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/release_table.hpp"
#include "model/releases.hpp"
#include "model/step/graph_options.hpp"
#include "tuner/packages.hpp"
#include "tuner/remedy_catalogue.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan::tuner {
namespace {

// Buckets of a tenth of DeepSpeed's default still hide latency on every link we know.
constexpr std::int64_t kSmallBucket = 50'000'000;

Json evaluation_json(const EvaluationSettings& settings) {
  Json inside = Json::object({{"batch_size", settings.batch_size}});
  if (settings.accumulation_steps > 0) inside["accumulation_steps"] = settings.accumulation_steps;
  if (settings.samples > 0) inside["samples"] = settings.samples;
  return Json::object({{settings.keeps_logits ? "logits" : "loss", inside}});
}

}  // namespace

void RemedyCatalogue::add_free() {
  add_evaluation();
  add_fused_loss();
  add_loss_alone();
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

void RemedyCatalogue::add_fused_loss() {
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

// A loop by hand whose outputs, logits among them, live longer than the loss.
void RemedyCatalogue::add_loss_alone() {
  if (workload_.frontend != Frontend::native || plan_.trainer != nullptr) return;
  if (!workload_.outputs_held) return;
  std::vector<Change> changes = {{ScenarioKey::outputs_held, Json(false)}};
  if (says(ScenarioKey::outputs_kept)) changes.push_back({ScenarioKey::outputs_kept, Json(false)});
  add(RemedyPrice::nothing,
      MemoryCategory::logits,
      "keep the loss alone of what the model returns: loss = engine(...).loss (--outputs-held "
      "false)",
      std::move(changes));
}

void RemedyCatalogue::add_attention() {
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

bool RemedyCatalogue::recomputes() const {
  return free_ || workload_.activation_checkpointing != ActivationCheckpointing::none;
}

// A release that keeps weights longer than others do.
void RemedyCatalogue::add_release() {
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

void RemedyCatalogue::add_reentrance() {
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

void RemedyCatalogue::add_expandable_segments() {
  if (!may_expand_segments(plan_)) return;
  add(RemedyPrice::nothing,
      MemoryCategory::fragmentation,
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (--expandable-segments true)",
      {{ScenarioKey::expandable_segments, Json(true)}});
}

// ZeRO shards over AutoTP's ranks, too, where they are no tensor ranks, and stage 3 can be taken.
void RemedyCatalogue::add_no_tensor_ranks() {
  if (plan_.degrees.autotp <= 1 || !says(ScenarioKey::tensor_parallel)) return;
  add(RemedyPrice::nothing,
      MemoryCategory::optimizer_states,
      "no tensor-parallel ranks (--tensor-parallel 1)",
      {{ScenarioKey::tensor_parallel, Json(1)}});
}

void RemedyCatalogue::add_evaluation() {
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

bool RemedyCatalogue::evaluation_decides() const {
  const std::vector<Limit>& limits = subject_.result().limits;
  return !limits.empty() && limits.back().largest_term.english().starts_with("evaluation");
}

// A checkpoint that zero.Init does not partition as it is read.
void RemedyCatalogue::add_sixteen_bit_copy() {
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
void RemedyCatalogue::add_loading_on_host() {
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
void RemedyCatalogue::add_no_accumulation() {
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

void RemedyCatalogue::add_buckets() {
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

bool RemedyCatalogue::may_change_engine() const {
  return plan_.trainer == nullptr && plan_.stages.empty() && plan_.degrees.tensor == 1 &&
         plan_.degrees.sequence == 1 && workload_.implementation == Implementation::hf &&
         !plan_.engine.embedded && plan_.degrees.data > 1;
}

// Another engine, sharding all.
std::vector<Change> RemedyCatalogue::changes_to(TrainingEngine engine) const {
  std::vector<Change> changes = {{ScenarioKey::engine, Json(name(kTrainingEngineNames, engine))}};
  if (!free_) changes.push_back({Knob::zero_stage, Json(std::int64_t{3})});
  return changes;
}

void RemedyCatalogue::add_engine() {
  if (!may_change_engine()) return;
  const auto under = [&](TrainingEngine engine, Phrase text) {
    add(RemedyPrice::nothing, MemoryCategory::parameters, std::move(text), changes_to(engine));
  };
  if (workload_.engine != TrainingEngine::fsdp && workload_.method != Method::full) {
    under(
        TrainingEngine::fsdp,
        free_ ? "train under FSDP (--engine fsdp)" : "train under FSDP (--engine fsdp --stage 3)");
  }
  if (workload_.engine != TrainingEngine::deepspeed) {
    under(TrainingEngine::deepspeed,
          free_ ? "train under DeepSpeed (--engine deepspeed)"
                : "train under DeepSpeed's stage 3 (--engine deepspeed --stage 3)");
  }
}

// The Trainer alone holds no flat buffers and, in full training, no fp32 copies.
void RemedyCatalogue::add_trainer_alone() {
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

}  // namespace zeroplan::tuner
