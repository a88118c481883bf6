// The CPU's part of an offloaded step, as the plan says it: who updates the weights, with how many
// threads a rank.
#pragma once

#include "model/cost/cpu_optimizer.hpp"
#include "model/plan/plan.hpp"

namespace zeroplan {

struct Resolver;

// The update of one rank's parameters on the CPU: in one pass by DeepSpeedCPUAdam and by torch's
// fused AdamW, in a loop of passes by torch's others (FSDP, zero_force_ds_cpu_optimizer false).
CpuAdamWork cpu_adam_work(const Plan& plan, Elements parameters);

// Threads of a rank where its optimizer steps on the CPU: what `omp_num_threads` says; else not set
// under DeepSpeed, whose launcher leaves OMP_NUM_THREADS alone without --bind_cores_to_rank
// (launcher/launch.py), and 1 for several ranks under FSDP, which torchrun starts
// (torch/distributed/run.py config_from_args). The embedded runtime divides the cores. Warns where
// more threads would step clearly faster. Checked by tests/unit/model/plan/host_work_test.cpp.
void resolve_host_threads(Resolver& resolver);

}  // namespace zeroplan
