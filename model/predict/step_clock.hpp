// Plays the tasks of a micro-step on three clocks: the host that issues, the GPU that computes, and
// the stream of its collectives. An analytic estimate in that durations are given and nothing
// competes: contention comes on top (step_time.cpp).
//
//   gather   starts when it is issued, the stream is free, and the unit two computations ago is
//            done: prefetching and all-gather limits let one unit run ahead
//   compute  starts when its weights are there; ends no earlier than the host has issued it
//   reduce   starts when the gradients exist
// Collectives of one group share one stream in order (ProcessGroupNCCL.cpp), gathers and reductions
// alike. Without overlap all of them stand in the way of the computation. A micro-step ends when
// both streams are done.
#pragma once

#include <vector>

#include "model/predict/step_traffic.hpp"

namespace zeroplan {

// Seconds, for one task each.
struct TaskSeconds {
  double gpu = 0.0;            // compute; of a collective: kernels in the way of the computation
  double host = 0.0;           // of the issuing thread
  double blocking_host = 0.0;  // the part of it that nothing runs beside
  double stream = 0.0;         // of the collective, with what is copied for it
};

struct MicroStepSeconds {
  double forward = 0.0;
  double backward = 0.0;
  double total() const { return forward + backward; }
};

// `is_forward[i]`: of tasks[i]. Precondition: as many seconds as tasks.
MicroStepSeconds play_micro_step(const std::vector<StepTask>& tasks,
                                 const std::vector<TaskSeconds>& seconds,
                                 const std::vector<bool>& is_forward,
                                 bool overlaps);

}  // namespace zeroplan
