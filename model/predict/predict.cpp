#include "model/predict/predict.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/cost/coefficients.hpp"
#include "model/plan/trainer.hpp"
#include "model/predict/gather_timeline.hpp"
#include "model/predict/inference_time.hpp"
#include "model/predict/job_time.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/memory_intervals.hpp"
#include "model/predict/phase_verdict.hpp"
#include "model/predict/predict_work.hpp"
#include "model/predict/stage_work.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan {
namespace {

// What a rank does, or a rank of each distinct stage of a pipeline.
class Ranks {
 public:
  // `work`: of a plan without a pipeline; null for one with.
  Ranks(const Plan& plan, const StepWork* work) : plan_(plan), work_(work) {
    if (work == nullptr) {
      stages_ = stage_works(plan);
    } else {
      traffic_ = step_traffic(plan, *work);
    }
  }

  // Of the rank with the least room.
  MemoryPrediction memory() const {
    if (stages_.empty()) return predict_memory(plan_, *work_);
    MemoryPrediction worst;
    for (const StageWork& stage : stages_) {
      const MemoryPrediction one = predict_memory(stage.plan, stage.work);
      const bool larger = one.gpu.peak_total > worst.gpu.peak_total;
      const HostMemory host = one.host.peak > worst.host.peak ? one.host : worst.host;
      if (larger) worst = one;
      worst.host = host;
    }
    return worst;
  }

  StepTime likeliest_time() const {
    return stages_.empty() ? step_time(plan_, work_->graph, traffic_)
                           : pipeline_time(plan_, stages_);
  }

  StepPrediction time() const {
    return stages_.empty() ? predict_step_time(plan_, work_->graph, traffic_)
                           : predict_pipeline_time(plan_, stages_);
  }

  // On another network.
  StepTime time_on(const Cluster& cluster) const {
    Plan other = plan_;
    other.cluster = cluster;
    if (stages_.empty()) return step_time(other, work_->graph, traffic_);
    std::vector<StageWork> stages = stages_;
    for (StageWork& stage : stages) stage.plan.cluster = cluster;
    return pipeline_time(other, stages);
  }

  const ModelGraph& graph() const {
    return stages_.empty() ? work_->graph : stages_.front().work.graph;
  }

 private:
  const Plan& plan_;
  const StepWork* work_;
  StepTraffic traffic_;
  std::vector<StageWork> stages_;  // empty: no pipeline
};

// Nobody said what joins the nodes: how fast it is on the usual networks.
void add_networks(const Plan& plan, const Ranks& ranks, StepResult& result) {
  if (!plan.cluster.network_assumed) return;
  Cluster cluster = plan.cluster;
  for (const double gigabits : {10.0, 25.0, 100.0, 200.0}) {
    cluster.inter_node.bandwidth.value = BytesPerSecond::of(gigabits * 1e9 / 8.0);
    result.at_network.push_back({gigabits, ranks.time_on(cluster).tokens_per_second_per_gpu});
  }
}

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

StepResult predict_ranks(const Plan& plan, const Ranks& ranks, const PredictOptions& options) {
  const MemoryPrediction memory = ranks.memory();
  StepResult result;
  result.id = plan.id;
  result.gpu = memory.gpu;
  result.host = memory.host;
  result.nvme = memory.nvme;
  const StepPrediction step =
      options.likeliest_alone ? StepPrediction{ranks.likeliest_time(), 0.0} : ranks.time();
  result.step = step.time;
  add_inference_time(plan, result.step);
  if (!options.likeliest_alone) add_networks(plan, ranks, result);
  const GpuVerdict verdict = gpu_verdict(memory, options);
  judge(plan, memory, verdict, options, result);
  judge_phases(plan, memory, verdict, options, result);
  take_memory_intervals(plan, memory, false, result);
  const double time_spread = kNinetyPercent * step.relative_sd;
  result.step_interval = {result.step.total / (1.0 + time_spread),
                          result.step.total * (1.0 + time_spread)};
  const ParameterCounts counts = count_parameters(*plan.whole_model);
  result.parameters_total = counts.total;
  result.parameters_trainable = counts.trainable;
  result.parameters_active = counts.active;
  result.assumptions = plan.assumptions;
  for (const Phrase& sentence : ranks.graph().assumptions) result.assumptions.push_back(sentence);
  if (runs_deepspeed(plan.workload) && plan.engine.stage == 3 && plan.engine.stage3.zero_init) {
    result.assumptions.push_back(zero_init_sentence(plan, count_parameters(*plan.model)));
  }
  if (!plan.stages.empty()) {
    result.assumptions.push_back(
        "pipeline: memory of the stage with the least room; time estimated analytically over the "
        "1F1B "
        "schedule of all stages");
  }
  const JobQuestion question{result.step.total, options.checkpoint_bandwidth};
  result.job = job_time(plan, question, result.assumptions);
  result.warnings = plan.warnings;
  if (const Bytes held = frozen_weights_held(plan); held > Bytes::zero()) {
    // TRL overrides use_reentrant where it must be true.
    result.warnings.push_back(phrase(
        "DeepSpeed {} keeps {:.1f} GiB of frozen weights gathered to the end of backward under "
        "reentrant checkpointing: {}",
        to_string(plan.software.deepspeed_release),
        held.gib(),
        forces_reentrance(plan) ? "DeepSpeed 0.18 does not" : "use_reentrant=False spares them"));
  }
  return result;
}

}  // namespace

StepResult predict(const Plan& plan, const PredictOptions& options) {
  if (!plan.stages.empty()) return predict_ranks(plan, Ranks(plan, nullptr), options);
  return predict(plan, step_work(plan), options);
}

StepResult predict(const Plan& plan, const StepWork& work, const PredictOptions& options) {
  return predict_ranks(plan, Ranks(plan, &work), options);
}

}  // namespace zeroplan
