#include "model/predict/predict.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "model/cost/coefficients.hpp"
#include "model/predict/job_time.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/step_time.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/predict/verdict.hpp"

namespace zeroplan {
namespace {

constexpr double kNinetyPercent = 1.645;  // standard deviations on each side of a 90 % interval

// Nobody said what joins the nodes: how fast it is on the usual networks.
void add_networks(const Plan& plan,
                  const ModelGraph& graph,
                  const StepTraffic& traffic,
                  StepResult& result) {
  if (!plan.cluster.network_assumed) return;
  Plan other = plan;
  for (const double gigabits : {10.0, 25.0, 100.0, 200.0}) {
    other.cluster.inter_node.bandwidth.value = BytesPerSecond::of(gigabits * 1e9 / 8.0);
    result.at_network.push_back(
        {gigabits, step_time(other, graph, traffic).tokens_per_second_per_gpu});
  }
}

// Without zero.Init every rank builds the whole model and moves it to its GPU before anything is
// partitioned (runtime/engine.py _configure_distributed_model).
std::string zero_init_sentence(const Plan& plan, const ParameterCounts& counts) {
  const double gigabytes =
      static_cast<double>((counts.total * plan.engine.model_dtype).count()) / 1e9;
  const std::int64_t ranks = plan.cluster.gpus_per_node();
  return fmt::format(
      "weights are partitioned while they are built (zero.Init): without it loading takes {:.1f} "
      "GB "
      "on each GPU and {:.0f} GB on each host",
      gigabytes,
      gigabytes * static_cast<double>(ranks));
}

}  // namespace

StepResult predict(const Plan& plan, const PredictOptions& options) {
  const StepWork work = step_work(plan);
  const MemoryPrediction memory = predict_memory(plan, work);
  const StepTraffic traffic = step_traffic(plan, work);
  StepResult result;
  result.id = plan.id;
  result.gpu = memory.gpu;
  result.host = memory.host;
  result.nvme = memory.nvme;
  const StepPrediction step = predict_step_time(plan, work.graph, traffic);
  result.step = step.time;
  add_networks(plan, work.graph, traffic, result);
  judge(plan, memory, gpu_verdict(memory, options), options, result);
  const double spread = kNinetyPercent * memory.relative_sd;
  const double peak = static_cast<double>(memory.gpu.peak_allocated.count());
  result.peak_allocated_interval = {Bytes::nearest(peak * std::max(0.0, 1.0 - spread)),
                                    Bytes::nearest(peak * (1.0 + spread))};
  const double time_spread = kNinetyPercent * step.relative_sd;
  result.step_interval = {result.step.total / (1.0 + time_spread),
                          result.step.total * (1.0 + time_spread)};
  const ParameterCounts counts = count_parameters(*plan.model);
  result.parameters_total = counts.total;
  result.parameters_trainable = counts.trainable;
  result.parameters_active = counts.active;
  result.assumptions = plan.assumptions;
  for (const std::string& sentence : work.graph.assumptions) result.assumptions.push_back(sentence);
  if (runs_deepspeed(plan.workload) && plan.engine.stage == 3 && plan.engine.stage3.zero_init) {
    result.assumptions.push_back(zero_init_sentence(plan, counts));
  }
  if (const auto job = job_time(plan, result.step.total)) {
    result.job_steps = job->steps;
    result.job_seconds = job->seconds;
    result.job_padded_length = job->padded_length;
    for (const std::string& sentence : job->assumptions) result.assumptions.push_back(sentence);
  }
  result.warnings = plan.warnings;
  return result;
}

}  // namespace zeroplan
