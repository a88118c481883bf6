// GPU and host memory outside forward and backward: loading, initialisation, the optimizer step's
// temporaries, saving. The engine's rules (model/engine/transients.hpp) by memory category.
#pragma once

#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/transients.hpp"
#include "model/memory_category.hpp"
#include "model/plan/plan.hpp"

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

}  // namespace zeroplan
