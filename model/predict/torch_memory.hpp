// GPU and host memory of one rank under FSDP and DDP: what window_memory.hpp and outside_passes.hpp
// are for DeepSpeed.
#pragma once

#include <vector>

#include "model/predict/window_memory.hpp"
#include "model/step/outside_passes.hpp"

namespace zeroplan {

struct TorchEngineMemory {
  std::vector<EngineBuffer> buffers;
  WindowMemory window;
  OutsidePasses outside;
  Bytes deferred;  // freed and not yet reusable: the gather that runs ahead
};

// Precondition: workload.engine is fsdp or ddp.
TorchEngineMemory torch_engine_memory(const Plan& plan, const StepWork& work);

}  // namespace zeroplan
