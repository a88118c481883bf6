#include "model/predict/prediction_parts.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "model/plan/plan.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/predict/host_memory.hpp"
#include "model/predict/job_time.hpp"
#include "model/predict/memory_intervals.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/run_phases.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/verdict.hpp"
#include "model/release_table.hpp"
#include "model/releases.hpp"
#include "model/step/graph_options.hpp"

namespace zeroplan {
namespace {

// A phase's bytes and where they must fit.
struct Demand {
  NormalDemand gpu;
  Bytes host;  // of a node; none where the phase takes none
};

class PhaseJudge {
 public:
  PhaseJudge(const Plan& plan, const MemoryPrediction& memory, const PredictOptions& options)
      : plan_(plan), memory_(memory), options_(options), host_(plan, memory, options) {}

  Bytes gpu_room() const { return memory_.gpu.capacity - options_.reserve; }

  Demand demand(const RunPhase& phase) const {
    const Bytes outside = at(memory_.gpu.breakdown_at_peak, MemoryCategory::cuda_context);
    // The host's memory for loading is free again by then.
    const HostMemory& host = memory_.host;
    const Bytes stays = host.peak_phase == Phase::load ? host.pinned : host.peak;
    const Bytes in_host = phase.host == Bytes::zero() ? Bytes::zero() : stays + phase.host;
    return {{phase.allocated + outside, memory_.relative_sd}, in_host};
  }
  const HostRoom& host() const { return host_; }

  bool fits_gpu(const RunPhase& phase) const {
    return probability_below(demand(phase).gpu, gpu_room()) >= options_.confidence;
  }
  bool fits(const RunPhase& phase) const {
    return fits_gpu(phase) && host_.probability(demand(phase).host) >= options_.confidence;
  }

  // What to set so that an evaluation fits, the least change first; empty where nothing of it does.
  Phrase change_of_evaluation() const {
    const EvaluationSettings& now = *plan_.evaluation;
    EvaluationSettings tried = now;
    if (now.keeps_logits) {
      for (const std::int64_t steps : {64, 16, 4, 1}) {
        if (now.accumulation_steps > 0 && steps >= now.accumulation_steps) continue;
        tried.accumulation_steps = steps;
        if (holds(tried)) return phrase("eval_accumulation_steps {}", steps);
      }
      tried = now;
      tried.keeps_logits = false;
      if (holds(tried)) return "prediction_loss_only, or preprocess_logits_for_metrics";
    }
    for (std::int64_t rows = now.batch_size / 2; rows >= 1; rows /= 2) {
      tried.batch_size = rows;
      if (!holds(tried)) continue;
      const Phrase size = phrase("per_device_eval_batch_size {}", rows);
      return now.keeps_logits ? phrase("{} with prediction_loss_only", size) : size;
    }
    return "";
  }

 private:
  bool holds(const EvaluationSettings& settings) const {
    Plan other = plan_;
    other.evaluation = std::make_shared<const EvaluationSettings>(settings);
    return fits(evaluation_phase(other, memory_.gpu));
  }

  const Plan& plan_;
  const MemoryPrediction& memory_;
  const PredictOptions& options_;
  HostRoom host_;
};

Phrase largest_part(const RunPhase& phase) {
  const auto most = std::max_element(
      phase.parts.begin(), phase.parts.end(), [](const PhasePart& a, const PhasePart& b) {
        return a.bytes < b.bytes;
      });
  Phrase kind = name(kRunPhaseKindNames, phase.kind);
  if (phase.kind == RunPhaseKind::evaluation) kind = "evaluation";  // which begins a sentence
  return most == phase.parts.end() ? kind : phrase("{}: {}", kind, most->name);
}

// The verdict of a run whose training step has the verdict `step`, judge()'s with the same
// arguments: its probability is lowered to that of the phase with the least room, and what the
// phase lacks joins the limits, with what to set. That of a plan without such phases is `step`.
// Phases of one run err together, so that the least of their probabilities counts and not the
// product.
Verdict judge_phases(const Plan& plan,
                     const MemoryPrediction& memory,
                     const GpuVerdict& of_gpu,
                     const PredictOptions& options,
                     Verdict step) {
  const PhaseJudge judge(plan, memory, options);
  double on_gpu = of_gpu.probability;
  double on_host = 1.0;
  Bytes most_on_host = memory.host.peak;
  std::vector<Limit> lacking;
  for (const RunPhase& phase : phases_outside_step(plan, memory.gpu)) {
    const Demand demand = judge.demand(phase);
    const double gpu = probability_below(demand.gpu, judge.gpu_room());
    const double host = judge.host().probability(demand.host);
    on_gpu = std::min(on_gpu, gpu);
    on_host = std::min(on_host, host);
    most_on_host = std::max(most_on_host, demand.host);
    if (gpu >= options.confidence && host >= options.confidence) continue;
    const Phrase change =
        phase.kind == RunPhaseKind::evaluation ? judge.change_of_evaluation() : "";
    if (gpu < options.confidence) {
      const Bytes enough = needed_for(demand.gpu, options.confidence);
      lacking.push_back({Resource::gpu_memory,
                         demand.gpu.mean,
                         enough - demand.gpu.mean,
                         options.confidence,
                         judge.gpu_room(),
                         largest_part(phase),
                         change});
    }
    if (host < options.confidence) {
      lacking.push_back(judge.host().limit(
          demand.host, "evaluation: logits of all samples in every process", change));
    }
  }
  Verdict run = std::move(step);
  if (of_gpu.probability > 0.0) run.probability *= on_gpu / of_gpu.probability;
  run.probability *= on_host;
  run.fits = run.fits && run.probability >= options.confidence;
  run.host_condition.reset();
  if (run.fits) run.host_condition = judge.host().condition(most_on_host, run.probability);
  for (Limit& limit : lacking) run.limits.push_back(std::move(limit));
  return run;
}

// Without zero.Init every rank builds the whole model and moves it to its GPU before anything is
// partitioned (runtime/engine.py _configure_distributed_model).
Phrase zero_init_sentence(const Plan& plan, const ParameterCounts& counts) {
  return phrase(
      "weights are partitioned while they are built (zero.Init): without it loading takes {:.1f} "
      "GB on each GPU",
      static_cast<double>((counts.total * plan.engine.model_dtype).count()) / 1e9);
}

std::vector<Phrase> assumptions_of(const Plan& plan, const std::vector<Phrase>& of_graph) {
  std::vector<Phrase> all = plan.assumptions;
  all.insert(all.end(), of_graph.begin(), of_graph.end());
  if (runs_zero3(plan) && plan.engine.stage3.zero_init) {
    all.push_back(zero_init_sentence(plan, count_parameters(*plan.model)));
  }
  if (!plan.stages.empty()) {
    all.push_back(
        "pipeline: memory of the stage with the least room; time estimated analytically over the "
        "1F1B "
        "schedule of all stages");
  }
  return all;
}

// What was asked for and changes nothing in this run.
std::vector<Phrase> without_effect(const Plan& plan) {
  const Workload& work = plan.workload;
  std::vector<Phrase> found;
  if (work.fused_loss && !plan.engine.embedded && !calls_fused_loss(plan)) {
    found.push_back(
        phrase("fused_loss has no effect on the logits: {} scores tokens in code of its own",
               name(kTrainerKindNames, plan.trainer->kind)));
  }
  const auto attention = [&](const char* code, Attention runs) {
    if (work.attention == runs) return;
    found.push_back(phrase("attention {} has no effect: {}'s code runs {} whatever is asked for",
                           name(kAttentionNames, work.attention),
                           code,
                           name(kAttentionNames, runs)));
  };
  if (plan.model->implementation_family == "chatglm") attention("ChatGLM", Attention::sdpa);
  return found;
}

std::vector<Phrase> warnings_of(const Plan& plan, const std::vector<Phrase>& of_step) {
  std::vector<Phrase> all = plan.warnings;
  for (const std::vector<Phrase>& more : {release_traps(plan), without_effect(plan), of_step}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

void take_parameters(const Plan& plan, StepResult& result) {
  const ParameterCounts counts = count_parameters(*plan.whole_model);
  result.parameters_total = counts.total;
  result.parameters_trainable = counts.trainable;
  result.parameters_active = counts.active;
}

void take_verdict(const Plan& plan,
                  const TightestMemory& tightest,
                  const PredictOptions& options,
                  StepResult& result) {
  const auto& [memory, gpu] = tightest;
  Verdict verdict = judge_phases(plan, memory, gpu, options, judge(plan, memory, gpu, options));
  result.fits = verdict.fits;
  result.fit_probability = verdict.probability;
  result.limits = std::move(verdict.limits);
  result.host_condition = verdict.host_condition;
}

void take_memory(const Plan& plan, const ShownMemory& shown, StepResult& result) {
  result.gpu = shown.gpu;
  const MemoryIntervals intervals =
      memory_intervals(plan, shown.gpu, shown.analytic, shown.simulated);
  result.peak_allocated_interval = intervals.allocated;
  result.peak_reserved_interval = intervals.reserved;
  result.peak_total_interval = intervals.total;
}

}  // namespace

std::vector<Phrase> release_traps(const Plan& plan) {
  std::vector<Phrase> traps;
  const Software& software = plan.software;
  const Workload& work = plan.workload;
  const FrozenWeightsHeld held = frozen_weights_held(plan);
  if (held.by_products) {
    traps.push_back(phrase(
        "bitsandbytes keeps {:.1f} GiB of four-bit weights gathered from the forward pass to the "
        "end of backward: {}",
        held.bytes.gib(),
        held.spared_by_release ? "checkpointing with use_reentrant=True under DeepSpeed 0.18 "
                                 "spares them"
                               : "checkpointing with use_reentrant=True spares them"));
  } else if (held.bytes > Bytes::zero()) {
    // TRL overrides use_reentrant where it must be true.
    traps.push_back(phrase(
        "DeepSpeed {} keeps {:.1f} GiB of frozen weights gathered to the end of backward under "
        "reentrant checkpointing: {}",
        to_string(software.deepspeed_release),
        held.bytes.gib(),
        held.spared_by_setting ? "use_reentrant=False spares them" : "DeepSpeed 0.18 does not"));
  }
  const bool recomputes_plainly =
      work.activation_checkpointing != ActivationCheckpointing::none && !work.checkpoint_reentrant;
  if (work.engine == TrainingEngine::deepspeed && plan.engine.stage == 3 && recomputes_plainly &&
      plan.engine.acts(ReleaseRule::misses_recomputed_ends)) {
    traps.push_back(
        phrase("DeepSpeed {} keeps the weights of what is recomputed without reentrance gathered "
               "until the optimizer step: DeepSpeed {} does not, nor does use_reentrant=True",
               to_string(software.deepspeed_release),
               to_string(release_row(ReleaseRule::misses_recomputed_ends).until)));
  }
  if (casts_frozen_weights(plan)) {
    traps.push_back(
        phrase("accelerate {} casts the frozen weights to fp32 under FSDP2, so that each GPU holds "
               "twice the bytes of its shard: accelerate {} does not",
               to_string(software.accelerate),
               to_string(release_row(ReleaseRule::casts_frozen_for_fully_shard).until)));
  }
  return traps;
}

Interval<Seconds> step_interval(Seconds total, double relative_sd) {
  const double reach = kNinetyPercent * relative_sd;
  return {total / (1.0 + reach), total * (1.0 + reach)};
}

PredictedStep analytic_step(const StepPrediction& estimate) {
  PredictedStep step;
  step.time = estimate.time;
  step.interval = step_interval(estimate.time.total, estimate.relative_sd);
  return step;
}

StepResult assemble(const Plan& plan, PredictionParts parts, const PredictOptions& options) {
  StepResult result;
  result.id = plan.id;
  result.host = parts.tightest.memory.host;
  result.nvme = parts.tightest.memory.nvme;
  take_memory(plan, parts.shown, result);
  take_verdict(plan, parts.tightest, options, result);
  PredictedStep& step = parts.step;
  result.step = step.time;
  result.step_interval = step.interval;
  result.at_network = std::move(step.at_network);
  take_parameters(plan, result);
  result.assumptions = assumptions_of(plan, parts.graph_assumptions);
  result.warnings = warnings_of(plan, step.warnings);
  if (const auto loading = loading_sentence(plan)) {
    const HostMemory& host = result.host;
    const bool short_of_it =
        host.peak_phase == Phase::load && (result.host_condition || host.peak > host.capacity);
    (short_of_it ? result.warnings : result.assumptions).push_back(*loading);
  }
  const JobQuestion question{step.time.total, step.of_analytic, options.checkpoint_bandwidth};
  result.job = job_time(plan, question, result.assumptions);
  return result;
}

}  // namespace zeroplan
