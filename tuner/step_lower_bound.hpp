// What a plan's optimizer step takes at least, behind its passes: the engine's own actions, priced
// as the simulator's tasks, on four clocks (host, compute stream, NVMe both ways) without
// contention and without collectives. Every clock is one of the simulator's and nothing is added to
// it, so the simulator's step is never shorter.
#pragma once

#include "model/plan/plan.hpp"

namespace zeroplan::tuner {

struct TailWork {
  double seconds = 0.0;   // from the last kernel of the passes to the end of the step's loop
  double dispatch = 0.0;  // s of the host, of all actions
};

// Precondition: a DeepSpeed engine.
TailWork tail_work(const Plan& plan);

}  // namespace zeroplan::tuner
