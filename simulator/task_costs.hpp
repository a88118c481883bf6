// Tasks as the cost functions say they are: how long work takes alone, and what it keeps busy, so
// that the event loop knows what slows what down. The host's part (Task::dispatch) is the caller's:
// an engine's policies know it by rule, a recorded program by the clock.
//
// Demands: a compute-bound kernel takes all multiprocessors, a memory-bound one the memory's rate;
// a collective takes `compute_slowdown_under_communication` of the multiprocessors and
// `collective_memory_passes` times its wire rate of the memory (contention.hpp, [T16]); copies and
// the CPU's Adam share the host's memory.
#pragma once

#include "model/cost/collective.hpp"
#include "model/cost/cpu_optimizer.hpp"
#include "model/cost/kernel_time.hpp"
#include "model/cost/nvme.hpp"
#include "simulator/program.hpp"

namespace zeroplan::simulator {

// What all tasks of a run are on. Both must outlive their users.
struct CostsOf {
  const Cluster& cluster;
  const Coefficients& coefficients;
};

Demands demands_of(KernelBound bound);

Task kernel_task(Seconds duration, KernelBound bound);

// message: the full tensor (collective.hpp).
Task collective_task(const CostsOf& costs,
                     Collective kind,
                     Bytes message,
                     const CollectiveGroup& group);

// Between this GPU and the host, while so many GPUs of the node copy.
Task copy_task(
    const CostsOf& costs, TaskKind direction, Bytes bytes, bool pinned, std::int64_t copying_gpus);

// Of one rank; all ranks of the node update at the same time.
Task cpu_optimizer_task(const CostsOf& costs, const CpuAdamWork& work);

// Of one rank, while so many ranks of the node do the same.
Task nvme_task(const CostsOf& costs, const NvmeLoad& load);

// Passes over host memory by each rank of the node.
Task host_memory_task(const CostsOf& costs, const HostPass& pass);

}  // namespace zeroplan::simulator
