// What the CPU thread that drives a GPU spends: dispatch, hooks, calls, loops. All of it runs
// beside the GPU until something waits for the GPU; what is serial is for the simulator to find.
//
// Units: Seconds.
#pragma once

#include "model/cost/coefficients.hpp"
#include "model/graph/graph.hpp"
#include "model/software.hpp"
#include "model/workload.hpp"

namespace zeroplan {

struct HostSoftware {
  TrainingEngine engine = TrainingEngine::deepspeed;
  Frontend frontend = Frontend::hf_trainer;
  Implementation implementation = Implementation::hf;
  int stage = 0;         // of ZeRO
  bool launches = true;  // false: CPU ranks of the embedded runtime call what they compute
};

// [T10] Host time by what happens; each is a coefficient of the same name.
//
// What stage 3 spends in Python was measured without a GPU: DeepSpeed on a fake process group with
// weights of a few elements, one core; the difference to the plain model, split by runs with more
// modules, with everything persistent, with and without a reduction for every gradient. Public
// microbenchmarks for the rest; FSDP's units likewise, a chain of small wrapped layers against the
// same layers alone. Left out: the CPU's speed, garbage collection. Checked by
// tests/unit/model/cost/kernel_time_test.cpp.
struct HostCosts {
  Seconds forward_operation;   // an ATen operation with kernels, from Python
  Seconds backward_operation;  // the same from autograd's thread
  Seconds view;                // an ATen operation without a kernel
  Seconds launch;              // every further kernel of an operation
  Seconds module_hook;         // a hook of a module: stage 3 has four a micro-step
  Seconds gradient_hook;       // a gradient that is complete: stages 1 to 3
  Seconds zero3_event;         // a gather or a reduction of stage 3
  Seconds fsdp_unit;           // a pass over a unit of FSDP, with its gather and its reduction
  Seconds collective_call;     // outside stage 3's events
  Seconds micro_step;          // the trainer's loop, once a micro-batch
  Seconds step;                // and once a step

  // One operation of a pass: recomputation runs from Python like the forward pass.
  Seconds operation(const Operation& operation, Pass pass) const;
  // All operations of a pass over a block, without hooks.
  Seconds pass(const Block& block, Pass pass) const;
};

HostCosts host_costs(const HostSoftware& software, const Coefficients& coefficients);

}  // namespace zeroplan
