// Does a plan fit, with which probability, and what is missing where it does not.
#pragma once

#include <vector>

#include "model/plan/plan.hpp"
#include "model/predict/memory_prediction.hpp"
#include "model/predict/predict_options.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

// What a resource needs and what there is, both normal; what there is may be assumed.
struct NormalDemand {
  Bytes mean;
  double relative_sd = 0.0;
  double capacity_sd = 0.0;  // relative
};
// 1 where nothing is needed or the limit is infinite.
double probability_below(const NormalDemand& demand, Bytes limit);
// How much of a resource there must be for it to suffice with the asked probability.
Bytes needed_for(const NormalDemand& demand, double confidence);
// Whether nobody said how much host memory a node has, so that what is needed is a requirement.
bool host_is_open(const Plan& plan, const MemoryPrediction& memory, const PredictOptions& options);

struct GpuVerdict {
  double probability = 0.0;  // that the GPU's memory suffices
  Bytes needed;              // with which it would, at the asked confidence
};

// From the analytic estimate: what is needed is normal around gpu_needed.
GpuVerdict gpu_verdict(const MemoryPrediction& memory, const PredictOptions& options);

struct Verdict {
  bool fits = false;
  double probability = 0.0;
  std::vector<Limit> limits;
};

// The plan fits with the product of the probabilities that GPU, host and NVMe suffice. Host memory
// is normal; where nobody said how much a node has, that is uncertain too. Weights on NVMe whose
// pool of buffers ends the run do not fit for certain.
Verdict judge(const Plan& plan,
              const MemoryPrediction& memory,
              const GpuVerdict& of_gpu,
              const PredictOptions& options);

}  // namespace zeroplan
