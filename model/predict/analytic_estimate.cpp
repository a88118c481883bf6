#include "model/predict/analytic_estimate.hpp"

#include "model/predict/inference_time.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_traffic.hpp"

namespace zeroplan {

AnalyticEstimate::AnalyticEstimate(const Plan& plan, const StepWork& work)
    : plan_(plan), work_(&work), traffic_(step_traffic(plan, work)) {}

AnalyticEstimate::AnalyticEstimate(const Plan& plan) : plan_(plan), stages_(stage_works(plan)) {}

MemoryPrediction AnalyticEstimate::memory() const {
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

StepPrediction AnalyticEstimate::time(const PredictOptions& options) const {
  StepPrediction step;
  if (options.likeliest_alone) {
    step.time =
        stages_.empty() ? step_time(plan_, work_->graph, traffic_) : pipeline_time(plan_, stages_);
  } else {
    step = stages_.empty() ? predict_step_time(plan_, work_->graph, traffic_)
                           : predict_pipeline_time(plan_, stages_);
  }
  add_inference_time(plan_, step.time);
  return step;
}

std::vector<NetworkAlternative> AnalyticEstimate::on_networks(
    const std::vector<double>& networks) const {
  std::vector<NetworkAlternative> speeds;
  for (const double gigabits : networks) {
    const StepTime there = time_on(on_network(plan_.cluster, gigabits));
    speeds.push_back({gigabits, there.tokens_per_second_per_gpu});
  }
  return speeds;
}

StepTime AnalyticEstimate::time_on(const Cluster& cluster) const {
  Plan other = plan_;
  other.cluster = cluster;
  if (stages_.empty()) return step_time(other, work_->graph, traffic_);
  std::vector<StageWork> stages = stages_;
  for (StageWork& stage : stages) stage.plan.cluster = cluster;
  return pipeline_time(other, stages);
}

const ModelGraph& AnalyticEstimate::graph() const {
  return stages_.empty() ? work_->graph : stages_.front().work.graph;
}

std::vector<double> usual_networks(const Plan& plan, const PredictOptions& options) {
  if (options.likeliest_alone || !plan.cluster.network_assumed) return {};
  return {10.0, 25.0, 100.0, 200.0};
}

Cluster on_network(const Cluster& cluster, double gigabits) {
  Cluster there = cluster;
  there.inter_node.bandwidth.value = BytesPerSecond::of(gigabits * 1e9 / 8.0);
  return there;
}

}  // namespace zeroplan
