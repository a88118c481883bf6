#include "model/predict/prediction_parts.hpp"

#include <utility>

#include "model/plan/trainer.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/predict/graph_options.hpp"
#include "model/predict/job_time.hpp"
#include "model/predict/memory_intervals.hpp"
#include "model/predict/phase_verdict.hpp"
#include "model/release_table.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// Without zero.Init every rank builds the whole model and moves it to its GPU before anything is
// partitioned (runtime/engine.py _configure_distributed_model).
Phrase zero_init_sentence(const Plan& plan, const ParameterCounts& counts) {
  const double gigabytes =
      static_cast<double>((counts.total * plan.engine.model_dtype).count()) / 1e9;
  const std::int64_t ranks = plan.cluster.gpus_per_node();
  return phrase(
      "weights are partitioned while they are built (zero.Init): without it loading takes {:.1f} "
      "GB "
      "on each GPU and {:.0f} GB on each host",
      gigabytes,
      gigabytes * static_cast<double>(ranks));
}

std::vector<Phrase> assumptions_of(const Plan& plan, const std::vector<Phrase>& of_graph) {
  std::vector<Phrase> all = plan.assumptions;
  all.insert(all.end(), of_graph.begin(), of_graph.end());
  if (runs_deepspeed(plan.workload) && plan.engine.stage == 3 && plan.engine.stage3.zero_init) {
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
  if (plan.model->model_type == "gpt_oss") attention("gpt-oss", Attention::eager);
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
  if (const Bytes held = frozen_weights_held(plan); held > Bytes::zero()) {
    // TRL overrides use_reentrant where it must be true.
    traps.push_back(phrase(
        "DeepSpeed {} keeps {:.1f} GiB of frozen weights gathered to the end of backward under "
        "reentrant checkpointing: {}",
        to_string(software.deepspeed_release),
        held.gib(),
        forces_reentrance(plan) ? "DeepSpeed 0.18 does not" : "use_reentrant=False spares them"));
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
  const JobQuestion question{step.time.total, step.of_analytic, options.checkpoint_bandwidth};
  result.job = job_time(plan, question, result.assumptions);
  return result;
}

}  // namespace zeroplan
