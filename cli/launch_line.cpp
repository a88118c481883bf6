#include "cli/launch_line.hpp"

namespace zeroplan {
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
  const Workload& workload = plan.workload;
  const std::string start = launcher(plan) + " train.py";
  if (workload.frontend == Frontend::native) {
    return start + " --deepspeed --deepspeed_config ds_config.json";
  }
  std::string line = start + " --deepspeed ds_config.json --per_device_train_batch_size " +
                     std::to_string(workload.micro_batch_size) + " --gradient_accumulation_steps " +
                     std::to_string(workload.gradient_accumulation_steps);
  if (workload.precision != Precision::fp32) {
    line += " --" + std::string(name(kPrecisionNames, workload.precision));
  }
  if (workload.activation_checkpointing == ActivationCheckpointing::none) return line;
  return line + " --gradient_checkpointing --gradient_checkpointing_kwargs '{\"use_reentrant\": " +
         (workload.checkpoint_reentrant ? "true" : "false") + "}'";
}

}  // namespace zeroplan
