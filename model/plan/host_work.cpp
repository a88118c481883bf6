#include "model/plan/host_work.hpp"

#include <algorithm>

#include "model/plan/resolver.hpp"

namespace zeroplan {
namespace {

bool steps_on_the_cpu(const Plan& plan) {
  if (plan.workload.engine == TrainingEngine::fsdp) return plan.fsdp.offload;
  return runs_deepspeed(plan.workload) && plan.engine.stage > 0 &&
         plan.engine.offload_optimizer.device != OffloadDevice::none;
}

// Where fewer threads than the rank's share of the cores cost at least a third of the speed.
void warn_of_few_threads(Resolver& r) {
  const Node& node = r.plan.cluster.node;
  const HostLoad load = host_load(node);
  if (load.threads == 0) return;
  const auto share = static_cast<std::int64_t>(threads_at_work(node, {.ranks = load.ranks}));
  if (share <= load.threads) return;
  const auto time = [&](std::int64_t threads) {
    constexpr Elements kMany = Elements::of(1'000'000'000);
    return cpu_adam_time(cpu_adam_work(r.plan, kMany),
                         node,
                         {.ranks = load.ranks, .threads = threads},
                         r.plan.coefficients);
  };
  constexpr double kClearly = 1.5;
  const double gain = time(load.threads) / time(share);
  if (gain < kClearly) return;
  r.warn(
      phrase("OMP_NUM_THREADS={0} makes the optimizer's step on the CPU {1:.1f} times slower "
             "than {2} threads a rank: export OMP_NUM_THREADS={2}",
             load.threads,
             gain,
             share));
}

}  // namespace

CpuAdamWork cpu_adam_work(const Plan& plan, Elements parameters) {
  const bool sharded = plan.workload.engine == TrainingEngine::fsdp;
  const OptimizerKind optimizer = sharded ? plan.fsdp.optimizer : plan.engine.optimizer;
  const bool loops = optimizer == OptimizerKind::torch_adam &&
                     plan.workload.optimizer_implementation != OptimizerImplementation::fused;
  return {.parameters = parameters,
          .kernel = loops ? CpuAdamKernel::passes : CpuAdamKernel::one_pass,
          .dtype = sharded ? plan.fsdp.storage_dtype : plan.engine.master_dtype};
}

void resolve_host_threads(Resolver& r) {
  Workload& workload = r.plan.workload;
  Node& node = r.plan.cluster.node;
  workload.omp_num_threads = r.integer(ScenarioKey::omp_num_threads).value_or(0);
  node.threads_per_rank = workload.omp_num_threads;
  if (workload.engine == TrainingEngine::embedded && workload.omp_num_threads == 0) {
    node.threads_per_rank = std::max<std::int64_t>(
        1, node.cpu_cores.value / std::max<std::int64_t>(1, node.gpus_per_node));
  }
  if (!steps_on_the_cpu(r.plan)) return;
  if (workload.omp_num_threads == 0 && node.gpus_per_node > 1) {
    if (workload.engine == TrainingEngine::fsdp) {
      node.threads_per_rank = 1;
      r.assume("1 CPU thread a rank: torchrun sets OMP_NUM_THREADS=1 for several ranks");
    } else {
      r.assume(phrase(
          "{} CPU cores for the threads of {} ranks: OMP_NUM_THREADS is not set, as under the "
          "deepspeed launcher (torchrun and accelerate set it to 1)",
          node.cpu_cores.value,
          node.gpus_per_node));
    }
  }
  warn_of_few_threads(r);
}

}  // namespace zeroplan
