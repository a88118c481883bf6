// What a step does besides its micro-steps and the collectives behind them: the optimizer on GPU or
// CPU, copies of offloaded states, swapping to NVMe.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/step_traffic.hpp"

namespace zeroplan {

struct StepTail {
  Seconds gpu;              // Adam, norms, scans
  Seconds cpu;              // Adam on the host
  Seconds copies;           // weights back to the GPU, before the next forward pass
  Seconds in_backward;      // gradients to the host, as far as they do not run beside the backward
  Seconds all_copies_back;  // the same, all of them
  Seconds nvme;             // optimizer states, as far as they do not run beside the CPU's Adam
  Seconds nvme_alone;       // all of them
  Seconds nvme_weights;     // offloaded weights, as far as they do not run beside the computation

  Seconds optimizer() const { return gpu + cpu + copies + nvme + nvme_weights; }
  Seconds offload() const { return cpu + copies + in_backward + nvme + nvme_weights; }
};

// `passes`: how long forward and backward take. DeepSpeed copies gradients on the stream of its
// reductions, beside the backward pass where overlap_comm is on and the memory is pinned; its CPU
// Adam waits for all of them and nothing runs beside it (stage3.py step). Swapping of sub-groups
// runs beside CPU Adam where reads and writes are pipelined
// (swap_tensor/pipelined_optimizer_swapper.py).
StepTail step_tail(const Plan& plan,
                   const StepTraffic& traffic,
                   const Coefficients& coefficients,
                   Seconds passes);

// One offloaded weight's own part on its way to the GPU, before it is gathered.
Seconds weight_copy_time(const Plan& plan, Bytes bytes, const Coefficients& coefficients);

}  // namespace zeroplan
