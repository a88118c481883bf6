// Sources: transformers 5.17 trainer.py evaluation_loop, trainer_pt_utils.py EvalLoopContainer and
// nested_numpify (16-bit bf16 logits become fp32 in host memory, in every process).
#include "model/predict/phase_verdict.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "model/plan/trainer.hpp"
#include "model/predict/run_phases.hpp"

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
    // What loading took of the host is gone by then.
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

}  // namespace

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

}  // namespace zeroplan
