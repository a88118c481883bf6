// What a step does besides its micro-steps and the collectives behind them: the optimizer on GPU or
// CPU, copies of offloaded states, swapping to NVMe.
#pragma once

#include "model/plan/plan.hpp"
#include "model/predict/step_traffic.hpp"

namespace zeroplan {

struct StepTail {
  Seconds gpu;              // Adam, norms, scans
  Seconds muon;             // its updates, behind the backward pass
  Seconds cpu;              // Adam on the host
  Seconds copies;           // weights back to the GPU, before the next forward pass
  Seconds in_backward;      // gradients to the host, as far as they do not run beside the backward
  Seconds all_copies_back;  // the same, all of them
  Seconds nvme;            // optimizer states and new weights, as far as they do not run beside the
                           // CPU's Adam
  Seconds nvme_weights;    // reading weights, as far as it does not run beside the computation
  Seconds nvme_gradients;  // writing gradients, as far as it does not run beside the backward pass
  Seconds nvme_longest;    // of all reads, all writes, and what is never at the same time
  Seconds nvme_in_a_row;   // all reads and writes

  Seconds on_gpu() const { return gpu + muon; }
  Seconds all_nvme() const { return nvme + nvme_weights + nvme_gradients; }
  Seconds optimizer() const { return gpu + cpu + copies + nvme + nvme_weights; }
  Seconds offload() const { return cpu + copies + in_backward + all_nvme(); }
};

// [T15b] The update of n sub-groups whose states are on NVMe: r, w seconds of reading and writing
// one, a of the CPU's Adam and of writing its new weights.
//   neither ahead nor behind    n (r + a + w)
//   pipeline_read               r + (n-1) max(r, a + w) + a + w
//   pipeline_write              r + a + (n-1) max(r + a, w) + w
//   both                        r + a + (n-1) max(r, a, w) + w
// Source: swap_tensor/pipelined_optimizer_swapper.py swap_in_optimizer_state (the next read is
// begun when the one at hand is there), swap_out_optimizer_state (a write is waited for before the
// next, the last one at once). Sub-groups are taken as equal. Checked by
// tests/unit/model/predict/step_time_test.cpp.
struct SwappedUpdate {
  std::int64_t groups = 1;
  Seconds read, update, write;  // of all
  bool read_ahead = false, write_behind = false;
};
Seconds swapped_update_time(const SwappedUpdate& update);

// `passes`: how long forward and backward take. DeepSpeed copies gradients on the stream of its
// reductions, beside the backward pass where overlap_comm is on and the memory is pinned; its CPU
// Adam waits for all of them and nothing runs beside it (stage3.py step), except swapping that is
// pipelined. Gradients go to NVMe beside the backward pass but for the last buffer of them, which
// the step waits for (swap_tensor/async_swapper.py).
StepTail step_tail(const Plan& plan,
                   const StepTraffic& traffic,
                   const Coefficients& coefficients,
                   Seconds passes);

// One offloaded weight's own part on its way to the GPU, before it is gathered.
Seconds weight_copy_time(const Plan& plan, Bytes bytes, const Coefficients& coefficients);

}  // namespace zeroplan
