// A plan's step, ready to be evaluated under moved coefficients: what step_time.hpp promises for a
// rank without neighbours and for a stage of a pipeline. Internal to model/predict.
#pragma once

#include <array>
#include <vector>

#include "model/cost/collective.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_clock.hpp"
#include "model/predict/step_result.hpp"
#include "model/predict/step_tail.hpp"
#include "model/predict/step_traffic.hpp"
#include "model/step/pass_costs.hpp"

namespace zeroplan {

// Durations of passes by class, relative to those of the plan's own coefficients.
using ClassFactors = std::array<double, kCostClassCount>;

constexpr ClassFactors unmoved() {
  ClassFactors factors{};
  factors.fill(1.0);
  return factors;
}

// What one stage of a pipeline contributes, in seconds.
struct StageTime {
  StageSeconds passes;      // of one micro-batch
  double ranks = 0.0;       // of all its passes: between ranks
  double reductions = 0.0;  // behind the last micro-batch
  double offload = 0.0;
  double behind = 0.0;  // all that comes behind it: reductions, optimizer, fixed costs
};

class StepModel {
 public:
  // All must outlive it.
  StepModel(const Plan& plan, const ModelGraph& graph, const StepTraffic& traffic);

  // links_moved: c differs from the plan's in what a collective costs.
  StepTime evaluate(const Coefficients& c, const ClassFactors& factors, bool links_moved) const;
  // The same of one stage of a pipeline.
  StageTime stage(const Coefficients& c, const ClassFactors& factors, bool links_moved) const;

 private:
  struct PassSeconds {
    double gpu = 0.0;
    double memory = 0.0;  // of it in memory-bound kernels
    double ranks = 0.0;   // of it between ranks of tensor parallelism and stages
    double host = 0.0;
  };
  // Sums over all micro-steps of a step, in seconds.
  struct WindowSeconds {
    double forward = 0.0, backward = 0.0;  // as they are simulated
    double gpu = 0.0, memory = 0.0, host = 0.0, stream = 0.0;
    double ranks = 0.0;  // of gpu: what passes move between ranks
    double wait = 0.0;   // for collectives
    double wait_forward = 0.0;
  };

  static PassSeconds seconds_of(const ClassSeconds& classes, const ClassFactors& factors);
  std::vector<CollectiveCost> message_costs(const Coefficients& c) const;
  double after(const std::vector<CollectiveCost>& messages) const;
  std::vector<TaskSeconds> durations(const MicroStep& window,
                                     const Coefficients& c,
                                     const std::vector<PassSeconds>& passes,
                                     const std::vector<CollectiveCost>& messages) const;
  WindowSeconds play(const Coefficients& c,
                     const ClassFactors& factors,
                     const std::vector<CollectiveCost>& messages) const;
  double contention(const Coefficients& c, const WindowSeconds& window) const;
  StepTime assemble(const Coefficients& c, const WindowSeconds& window, double after) const;
  void fill_bounds(const Coefficients& c,
                   const WindowSeconds& window,
                   const StepTail& tail,
                   double after,
                   double scale,
                   StepTime& step) const;

  const Plan& plan_;
  const StepTraffic& traffic_;
  PassCosts costs_;
  std::vector<std::vector<bool>> is_forward_;  // of each window's tasks
  std::vector<CollectiveCost> messages_;
};

}  // namespace zeroplan
