// Does a plan fit, with which probability, and what is missing where it does not.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/memory.hpp"
#include "model/predict/predict.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

struct GpuVerdict {
  double probability = 0.0;  // that the GPU's memory suffices
  Bytes needed;              // with which it would, at the asked confidence
};

// From the analytic estimate: what is needed is normal around gpu_needed.
GpuVerdict gpu_verdict(const MemoryPrediction& memory, const PredictOptions& options);

// Fills fits, fit_probability and limits of `result`, whose gpu is there already: the plan fits
// with the product of the probabilities that GPU, host and NVMe suffice. Host memory is normal;
// where nobody said how much a node has, that is uncertain too. Weights on NVMe whose pool of
// buffers ends the run do not fit for certain.
void judge(const Plan& plan,
           const MemoryPrediction& memory,
           const GpuVerdict& verdict,
           const PredictOptions& options,
           StepResult& result);

}  // namespace zeroplan
