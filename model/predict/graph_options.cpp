#include "model/predict/graph_options.hpp"

namespace zeroplan {

GraphOptions graph_options(const Plan& plan) {
  const Workload& workload = plan.workload;
  GraphOptions options;
  options.micro_batch = workload.micro_batch_size;
  options.sequence_length = workload.sequence_length;
  options.sequence_parallel = workload.sequence_parallel;
  options.dtype = plan.engine.model_dtype;
  options.attention = workload.attention;
  options.implementation = workload.implementation;
  options.transformers = plan.software.transformers;
  options.torch = plan.software.torch;
  const ComputeCapability& capability = plan.cluster.gpu.compute_capability;
  options.compute_capability = capability.major * 10 + capability.minor;
  options.fused_loss = workload.fused_loss;
  options.tiled_mlp = workload.tiled_mlp;
  if (workload.method != Method::full) {
    LoraOptions lora;
    lora.rank = workload.lora.rank;
    lora.targets = workload.lora.targets;
    lora.dtype = options.dtype;  // DeepSpeed casts the whole module, adapters included
    options.lora = lora;
    options.weights = workload.lora.weights;
  }
  options.checkpointing = workload.activation_checkpointing;
  options.checkpoint_reentrant = workload.checkpoint_reentrant;
  options.checkpoint_offload = workload.activation_offload == ActivationOffload::cpu;
  options.embedded = workload.engine == TrainingEngine::embedded;
  options.outputs_held_in_backward = workload.outputs_held && !options.embedded;
  options.zero3_linear = runs_deepspeed(plan.workload) && !options.embedded &&
                         plan.engine.stage == 3 && plan.engine.stage3.memory_efficient_linear;
  return options;
}

}  // namespace zeroplan
