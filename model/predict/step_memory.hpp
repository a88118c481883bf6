// GPU and host memory outside forward and backward: loading, initialisation, the optimizer step's
// temporaries, saving. The engine's rules (model/engine/transients.hpp) by memory category.
#pragma once

#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/transients.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

struct OutsidePasses {
  // On the GPU, all of what is there then.
  CategoryBytes load{};
  CategoryBytes init{};
  CategoryBytes save{};
  Bytes step_temporaries;  // above the buffers that live through the step
  // On one rank's host: what loading and initialisation hold, and what the step adds.
  HostAndGpu load_peak;
  HostAndGpu init_peak;
  Bytes host_step_temporaries;
  Bytes host_save;  // what saving adds on rank 0
};

// `gpu_room`: what the GPU has for tensors.
OutsidePasses outside_passes(const Plan& plan,
                             const EngineConfig& config,
                             const std::vector<EngineBuffer>& buffers,
                             Bytes gpu_room);

// By parameter: does torch's own linear, where memory_efficient_linear does not replace it
// (runtime/zero/linear.py), save a view of the gathered weight, which then outlives its release by
// the engine? Persistent weights are never gathered again. Empty where no weight is saved.
std::vector<bool> weights_saved_by_linear(const Plan& plan, const EngineConfig& config);

// Of each parameter of stage 3: whether a recomputation without reentrance keeps the gathered
// weight until its gradient is there. DeepSpeed's own linear saves it with the input, and what is
// packed then is a tensor of the storage itself (torch/utils/checkpoint.py _recomputation_hook:
// x.detach()), which the parameter's release does not free. Empty: of none.
std::vector<bool> weights_kept_by_recomputation(const Plan& plan, const EngineConfig& config);

}  // namespace zeroplan
