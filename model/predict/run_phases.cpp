// Sources: TRL 1.16.0 trainer/grpo_trainer.py, generation/vllm_generation.py, models/utils.py
// (unwrap_model_for_generation, prepare_deepspeed); transformers 5.17 generation/utils.py _sample,
// cache_utils.py DynamicLayer.update, trainer.py evaluation_loop, trainer_pt_utils.py
// EvalLoopContainer.
#include "model/predict/run_phases.hpp"

#include <algorithm>

#include "model/plan/trainer.hpp"
#include "model/predict/beside_memory.hpp"
#include "model/predict/inference_time.hpp"
#include "model/releases.hpp"
#include "model/step/generation.hpp"
#include "model/step/rollout_memory.hpp"

namespace zeroplan {
namespace {

Bytes whole_weights(const Plan& plan) {
  Elements elements;
  for (const EngineParameter& parameter : plan.engine_parameters) elements += parameter.numel;
  return elements * weight_dtype(plan);
}

Bytes largest_weight(const Plan& plan) {
  Elements largest;
  for (const EngineParameter& parameter : plan.engine_parameters) {
    largest = std::max(largest, parameter.numel);
  }
  return largest * weight_dtype(plan);
}

// Of gkd: the trained model's tensors where the teacher runs and the most of its loss, both beside
// the batch; what the teacher returns lives from one to the other.
struct Distillation {
  Bytes before, peak, results, rise;
};
std::optional<Distillation> distillation(const Plan& plan) {
  if (!distils(plan) || plan.beside == nullptr) {
    return std::nullopt;
  }
  const StepWork work = step_work(plan);
  const std::optional<LossMoment>& loss = work.activations.loss;
  if (!loss) return std::nullopt;
  Distillation found{
      sum(loss->before) + work.graph.batch, sum(loss->peak) + work.graph.batch, {}, {}};
  for (const InferencePass& pass : plan.beside->passes) {
    found.results += sum(inference_results(*pass.plan));
    found.rise = std::max(found.rise, sum(inference_rise(*pass.plan)));
  }
  return found;
}

RunPhase training_step(const Plan& plan,
                       const GpuMemory& gpu,
                       const std::optional<Distillation>& distilled) {
  RunPhase phase;
  Bytes peak;
  if (distilled) peak = gpu.static_allocated + distilled->peak + distilled->results;
  for (const Phase which : {Phase::forward, Phase::backward, Phase::step}) {
    // A generation stands in the forward phase of the simulation.
    if (which == Phase::forward && plan.trainer != nullptr && plan.trainer->generates()) continue;
    const CategoryBytes& bytes = gpu.by_phase[static_cast<std::size_t>(which)];
    peak = std::max(peak, sum(bytes));
  }
  phase.allocated = peak;
  const Bytes results = distilled ? distilled->results : Bytes::zero();
  phase.parts.push_back(
      {"activations, gradients and copies", peak - gpu.static_allocated - results});
  if (distilled) {
    phase.parts.push_back({"what the teacher returned: logits, keys and values", results});
  }
  return phase;
}

// Passes within the training step are part of its forward phase.
std::vector<RunPhase> inference_phases(const Plan& plan,
                                       const GpuMemory& gpu,
                                       const std::optional<Distillation>& distilled) {
  std::vector<RunPhase> phases;
  if (plan.beside == nullptr) return phases;
  for (const InferencePass& pass : plan.beside->passes) {
    RunPhase phase;
    phase.kind = RunPhaseKind::inference;
    phase.of =
        pass.model < 0
            ? (pass.plan->adapters_off               ? "reference"
               : pass.plan->part == ModelPart::value ? "critic"
                                                     : "")
            : std::string(name(kModelRoleNames,
                               plan.beside->models[static_cast<std::size_t>(pass.model)].role));
    const bool seen = std::any_of(
        phases.begin(), phases.end(), [&](const RunPhase& other) { return other.of == phase.of; });
    if (seen) continue;
    const Bytes rise = sum(inference_rise(*pass.plan));
    phase.parts.push_back({"activations, logits and gathered weights", rise});
    phase.allocated = gpu.static_allocated + rise;
    if (distilled) {
      phase.parts.push_back({"what the trained model's forward pass has saved", distilled->before});
      phase.allocated = phase.allocated + distilled->before;
    }
    if (pass.moment == PassMoment::after_forward) {
      const Bytes forward = sum(gpu.by_phase[static_cast<std::size_t>(Phase::forward)]);
      phase.parts.push_back({"what the trained model's forward pass has saved",
                             std::max(Bytes::zero(), forward - phase.allocated)});
      phase.allocated = std::max(phase.allocated, forward);
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

void add_generation(const Plan& plan, const GpuMemory& gpu, std::vector<RunPhase>& phases) {
  if (plan.trainer == nullptr || !plan.trainer->generates()) return;
  const GenerationSettings& settings = plan.trainer->generation;
  RunPhase phase;
  phase.kind = RunPhaseKind::generation;
  if (settings.by == GenerationBy::trainer) {
    const GenerationMemory memory = generation_memory(plan);
    if (memory.gathered > Bytes::zero())
      phase.parts.push_back({"gathered weights", memory.gathered});
    if (memory.forward > Bytes::zero()) {
      phase.parts.push_back({"activations of all tokens, without a cache", memory.forward});
    } else {
      phase.parts.push_back({"keys and values", memory.cache + memory.grown});
    }
    phase.parts.push_back({"logits of a token", memory.logits});
    if (memory.kept > Bytes::zero()) phase.parts.push_back({"logits of all tokens", memory.kept});
    phase.allocated = gpu.static_allocated + memory.sum();
    phases.push_back(std::move(phase));
    return;
  }
  if (settings.by == GenerationBy::colocated) {
    phase.parts.push_back({"vLLM: weights, keys and values", server_share(plan)});
    // Without sleep it is there between steps, too.
    phase.allocated = gpu.static_allocated;
    if (settings.sleeps) phase.allocated = phase.allocated + server_share(plan);
    phases.push_back(phase);
  }
}

// With vLLM: one weight after the other is gathered and copied; with adapters all at once, to merge
// them.
void add_synchronisation(const Plan& plan, const GpuMemory& gpu, std::vector<RunPhase>& phases) {
  if (!has_server(plan)) return;
  const GenerationSettings& settings = plan.trainer->generation;
  RunPhase synchronisation;
  synchronisation.kind = RunPhaseKind::synchronisation;
  const bool adapters = plan.workload.method != Method::full;
  const Bytes gathered =
      !cuts_weights(plan) ? Bytes::zero() : (adapters ? whole_weights(plan) : largest_weight(plan));
  synchronisation.parts.push_back({"gathered weights", gathered});
  Bytes awake;
  if (settings.sleeps && settings.by == GenerationBy::colocated) {
    awake = whole_weights(plan) / settings.tensor_parallel;  // wake_up(tags=["weights"])
    synchronisation.parts.push_back({"vLLM: weights", awake});
  }
  synchronisation.allocated = gpu.static_allocated + gathered + awake;
  phases.push_back(std::move(synchronisation));
}

struct KeptLogits {
  std::int64_t batches = 1;  // on the GPU at once
  Bytes gpu;                 // of each
  Bytes host;                // of a node, when all are there
};

// Logits of all ranks are gathered on each GPU, in fp32 where accelerate's autocast returned them,
// and joined to those before: the old, the new and both together for a moment. Every process keeps
// those of all samples as fp32 numpy arrays, joined in the same way where they come in parts; whole
// ones stand beside their 16-bit copy.
KeptLogits kept_logits(const Plan& plan) {
  const EvaluationSettings& evaluation = *plan.evaluation;
  const std::int64_t world = plan.degrees.data;
  const std::int64_t all =
      evaluation.samples > 0 ? ceil_div(evaluation.samples, evaluation.batch_size * world) : 1;
  KeptLogits kept;
  const bool in_parts = evaluation.accumulation_steps > 0 && evaluation.accumulation_steps < all;
  kept.batches = in_parts ? evaluation.accumulation_steps : all;
  const bool autocast = !runs_deepspeed(plan.workload) && weight_dtype(plan) == DType::fp32;
  const DType dtype = autocast ? DType::fp32 : plan.engine.model_dtype;
  const Elements batch = Elements::of(detail::checked_product(
      detail::checked_product(evaluation.batch_size * world, plan.workload.sequence_length),
      plan.model->shape.vocabulary));
  kept.gpu = batch * dtype * kept.batches * 2;
  const Bytes arrays = batch * DType::fp32 * all;
  const Bytes beside =
      in_parts ? arrays : (dtype == DType::bf16 ? batch * dtype * all : Bytes::zero());
  kept.host = (arrays + beside) * plan.cluster.gpus_per_node();
  return kept;
}

std::vector<ModelShare> shares_of(const Plan& plan) {
  std::vector<ModelShare> shares;
  if (plan.beside == nullptr) return shares;
  for (const BesideModel& model : plan.beside->models) {
    ModelShare share;
    share.role = model.role;
    share.name = model.name;
    share.placement = model.placement;
    const bool values = model.plan->part == ModelPart::value;
    for (const Parameter& parameter : model.plan->model->parameters) {
      if (values && !parameter.name.starts_with(kValuePrefix)) continue;
      share.parameters += parameter.numel;
    }
    if (has_own_weights(model.placement)) {
      const BesideWeights weights = weights_between_passes(*model.plan);
      share.gpu = weights.gpu;
      share.host = weights.host * plan.cluster.gpus_per_node();
    }
    share.forward = inference_seconds(*model.plan);
    shares.push_back(std::move(share));
  }
  return shares;
}

// Passes of a model in an optimizer step.
double passes_of_step(const Plan& plan, int model) {
  const auto count = std::count_if(plan.beside->passes.begin(),
                                   plan.beside->passes.end(),
                                   [&](const InferencePass& pass) { return pass.model == model; });
  // Of a rollout as many as it has chunks, for all its steps.
  if (plan.trainer != nullptr && plan.trainer->trains_values()) {
    const std::int64_t chunks = ceil_div(samples_of_rollout(plan), rollout_rows(plan));
    return static_cast<double>(count * chunks) / static_cast<double>(plan.trainer->rollout.epochs);
  }
  return static_cast<double>(count * plan.workload.gradient_accumulation_steps);
}

void add_choices_of_models(const Plan& plan, std::vector<MemoryChoice>& choices) {
  if (plan.beside == nullptr) return;
  for (std::size_t i = 0; i < plan.beside->models.size(); ++i) {
    const BesideModel& model = plan.beside->models[i];
    if (!has_own_weights(model.placement)) continue;
    const std::string role(name(kModelRoleNames, model.role));
    const Bytes held = weights_between_passes(*model.plan).gpu;
    const Seconds now = inference_seconds(*model.plan);
    const double passes = passes_of_step(plan, static_cast<int>(i));
    const auto moved = [&](const Phrase& what, const Plan& other) {
      const Bytes left = weights_between_passes(other).gpu;
      if (left >= held) return;
      const Seconds more = inference_seconds(other) - now;
      choices.push_back({what, held - left, std::max(Seconds(), more) * passes});
    };
    if (!runs_deepspeed(plan.workload)) continue;
    Plan other = *model.plan;
    if (model.placement == Placement::replicated) {
      other.engine.stage = 3;
      moved(phrase("shard the {}: ZeRO stage 3, at which TRL shards it too", role), other);
    }
    other.engine.stage = 3;
    other.engine.offload_parameter.device = OffloadDevice::cpu;
    moved(phrase("keep the {} in host memory: offload_param of its ds_config", role), other);
  }
}

// Passes of a rollout over one row at a time: logits and hidden states of the others go.
void add_smaller_rollout(const Plan& plan, std::vector<MemoryChoice>& choices) {
  if (plan.beside == nullptr || plan.trainer == nullptr || !plan.trainer->trains_values() ||
      rollout_rows(plan) == 1)
    return;
  Bytes freed;
  for (const InferencePass& pass : plan.beside->passes) {
    Plan single = *pass.plan;
    single.workload.micro_batch_size = 1;
    freed = std::max(freed, sum(inference_rise(*pass.plan)) - sum(inference_rise(single)));
  }
  choices.push_back({"local_rollout_forward_batch_size 1: the rollout is scored row by row",
                     freed,
                     std::nullopt});
}

void add_other_choices(const Plan& plan, const GpuMemory& gpu, std::vector<MemoryChoice>& choices) {
  const TrainerSettings* trainer = plan.trainer.get();
  const bool preferences = trainer != nullptr && !trainer->generates();
  if (preferences && plan.beside != nullptr && !plan.beside->models.empty()) {
    Bytes weights;
    for (const BesideModel& model : plan.beside->models) {
      if (model.role == ModelRole::reference && model.placement != Placement::policy_weights) {
        weights += weights_between_passes(*model.plan).gpu;
      }
    }
    if (weights > Bytes::zero()) {
      choices.push_back(
          {"precompute_ref_log_probs: the reference scores all samples once, before "
           "the training",
           weights,
           Seconds()});
    }
  }
  add_smaller_rollout(plan, choices);
  if (has_server(plan) && !trainer->generation.sleeps && server_share(plan) > Bytes::zero()) {
    choices.push_back({"vllm_enable_sleep_mode: vLLM gives its memory back while the model trains",
                       server_share(plan),
                       std::nullopt});
  }
  const bool on_gpu = runs_deepspeed(plan.workload) && plan.engine.stage > 0 &&
                      plan.engine.offload_optimizer.device == OffloadDevice::none;
  const Bytes states =
      at(gpu.by_phase[static_cast<std::size_t>(Phase::step)], MemoryCategory::optimizer_states);
  if (on_gpu && states > Bytes::zero()) {
    choices.push_back(
        {"keep the optimizer in host memory: offload_optimizer", states, std::nullopt});
  }
}

}  // namespace

Plan evaluation_plan(const Plan& plan) {
  Plan evaluated = plan;
  evaluated.beside = nullptr;
  evaluated.inference = true;
  evaluated.model = std::make_shared<const Model>(without_training(*plan.model));
  evaluated.workload.micro_batch_size = plan.evaluation->batch_size;
  evaluated.workload.activation_checkpointing = ActivationCheckpointing::none;
  // Liger's forward skips logits by itself only while it trains.
  const bool skips = !plan.evaluation->keeps_logits &&
                     plan.software.transformers_act(ReleaseRule::evaluates_in_kernel);
  if (plan.workload.implementation == Implementation::hf && !skips) {
    evaluated.workload.fused_loss = false;
  }
  return evaluated;
}

RunPhase evaluation_phase(const Plan& plan, const GpuMemory& gpu) {
  RunPhase phase;
  phase.kind = RunPhaseKind::evaluation;
  const Bytes rise = sum(inference_rise(evaluation_plan(plan)));
  phase.parts.push_back({"activations, logits and gathered weights", rise});
  phase.allocated = gpu.static_allocated + rise;
  if (plan.evaluation->keeps_logits) {
    const KeptLogits kept = kept_logits(plan);
    phase.parts.push_back({phrase("logits of {} batches of all ranks", kept.batches), kept.gpu});
    phase.allocated = phase.allocated + kept.gpu;
    phase.host = kept.host;
  }
  return phase;
}

std::vector<RunPhase> phases_outside_step(const Plan& plan, const GpuMemory& gpu) {
  std::vector<RunPhase> phases;
  add_synchronisation(plan, gpu, phases);
  if (plan.evaluation != nullptr) phases.push_back(evaluation_phase(plan, gpu));
  return phases;
}

std::optional<RunPhases> run_phases(const Plan& plan, const StepResult& result) {
  const bool alone = plan.trainer == nullptr || !plan.trainer->has_others();
  if (plan.beside == nullptr && plan.evaluation == nullptr && alone) return std::nullopt;
  RunPhases run;
  run.models = shares_of(plan);
  const std::optional<Distillation> distilled = distillation(plan);
  run.phases.push_back(training_step(plan, result.gpu, distilled));
  for (RunPhase& phase : inference_phases(plan, result.gpu, distilled)) {
    run.phases.push_back(std::move(phase));
  }
  add_generation(plan, result.gpu, run.phases);
  for (RunPhase& phase : phases_outside_step(plan, result.gpu))
    run.phases.push_back(std::move(phase));
  const auto most = std::max_element(
      run.phases.begin(), run.phases.end(), [](const RunPhase& a, const RunPhase& b) {
        return a.allocated < b.allocated;
      });
  run.peak = static_cast<std::size_t>(most - run.phases.begin());
  add_choices_of_models(plan, run.choices);
  add_other_choices(plan, result.gpu, run.choices);
  std::stable_sort(run.choices.begin(),
                   run.choices.end(),
                   [](const MemoryChoice& a, const MemoryChoice& b) { return a.freed > b.freed; });
  return run;
}

}  // namespace zeroplan
