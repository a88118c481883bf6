#include "cli/launch_line.hpp"

#include "tuner/kit/trainer_line.hpp"

namespace zeroplan::cli {
namespace {

std::string launcher(const Plan& plan) {
  const Cluster& cluster = plan.cluster;
  if (plan.workload.engine != TrainingEngine::deepspeed) {
    return "torchrun --nproc_per_node " + std::to_string(cluster.gpus_per_node());
  }
  return cluster.nodes > 1 ? "deepspeed --hostfile hostfile"
                           : "deepspeed --num_gpus " + std::to_string(cluster.gpus_per_node());
}

}  // namespace

std::string launch_line(const Plan& plan) {
  const std::string start = launcher(plan) + " train.py ";
  if (plan.workload.frontend == Frontend::native) {
    return start + "--deepspeed --deepspeed_config ds_config.json";
  }
  return start + tuner::trainer_arguments(plan);
}

}  // namespace zeroplan::cli
