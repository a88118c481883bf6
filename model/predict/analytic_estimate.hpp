// What a rank of a plan does, estimated analytically, or what a rank of each distinct stage of a
// pipeline does: memory, time, and time on other networks, each when it is asked for.
//
//   memory.hpp      GPU and host memory by category and phase
//   step_time.hpp   time of a step from the cost functions and the engine's messages
//
// predict() makes its result of these alone, simulate() of these and what it simulates.
#pragma once

#include <vector>

#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/stage_work.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_spread.hpp"
#include "model/predict/step_work.hpp"

namespace zeroplan {

class AnalyticEstimate {
 public:
  // Of a plan without a pipeline, whose work is `work`, step_work(plan). Both must outlive it.
  AnalyticEstimate(const Plan& plan, const StepWork& work);
  // Of a plan with a pipeline, which must outlive it.
  explicit AnalyticEstimate(const Plan& plan);

  // Of the rank with the least room; host memory is that of the stage that needs the most.
  MemoryPrediction memory() const;
  // A step, with the passes of other models of the process. Where the likeliest numbers alone are
  // asked for, its relative standard deviation is 0.
  StepPrediction time(const PredictOptions& options) const;
  // How fast a step is on `networks`, in gigabits per second, node and direction.
  std::vector<NetworkAlternative> on_networks(const std::vector<double>& networks) const;

  const ModelGraph& graph() const;
  const std::vector<StageWork>& stages() const { return stages_; }  // empty: no pipeline

 private:
  StepTime time_on(const Cluster& cluster) const;

  const Plan& plan_;
  const StepWork* work_ = nullptr;
  StepTraffic traffic_;
  std::vector<StageWork> stages_;
};

// Where nobody said what joins the nodes: the usual networks, in gigabits per second. None where
// the network was said, or the likeliest numbers alone are asked for.
std::vector<double> usual_networks(const Plan& plan, const PredictOptions& options);
// The cluster with a network between nodes of so many gigabits per second, per node and direction.
Cluster on_network(const Cluster& cluster, double gigabits);

}  // namespace zeroplan
