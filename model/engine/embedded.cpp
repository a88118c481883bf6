#include "model/engine/embedded.hpp"

#include <string>

namespace zeroplan {

void make_embedded(EngineConfig& config) {
  config.embedded = true;
  config.version = kNewestDeepSpeed;
  config.pin_backend = PinBackend::native;
  config.contiguous_gradients = true;
  if (config.stage < 3) config.gradient_accumulation_dtype = config.model_dtype;
  config.master_dtype = DType::fp32;
  config.optimizer_state_dtype = DType::fp32;
  config.stage3.memory_efficient_linear = true;
  config.stage3.zero_init = true;
  if (config.optimizer == OptimizerKind::torch_adam) config.optimizer = OptimizerKind::fused_adam;
  config.optimizer_foreach = false;
}

std::vector<Diagnostic> not_embedded(const EngineConfig& config) {
  std::vector<Diagnostic> problems;
  const auto need = [&](bool fine, std::string pointer, std::string expected, std::string got) {
    if (fine) return;
    problems.push_back({.file = "ds_config",
                        .pointer = std::move(pointer),
                        .expected = std::move(expected) + " (embedded runtime)",
                        .got = std::move(got),
                        .hint = ""});
  };
  const Stage3Config& stage3 = config.stage3;
  const bool adam =
      config.optimizer == OptimizerKind::fused_adam || config.optimizer == OptimizerKind::cpu_adam;
  need(adam, "/optimizer/type", "AdamW", "another optimizer");
  need(!config.pipeline, "/pipeline", "no pipeline", "pipeline stages");
  need(config.sequence_parallel_ranks == 1, "/sequence_parallel_size", "1", "more");
  need(stage3.mics_shard_size <= 0,
       "/zero_optimization/mics_shard_size",
       "-1",
       std::to_string(stage3.mics_shard_size));
  need(stage3.hpz_partition_size <= 1,
       "/zero_optimization/zero_hpz_partition_size",
       "1",
       std::to_string(stage3.hpz_partition_size));
  need(!stage3.quantized_weights, "/zero_optimization/zero_quantized_weights", "false", "true");
  need(!stage3.quantized_gradients, "/zero_optimization/zero_quantized_gradients", "false", "true");
  need(config.offload_optimizer.device != OffloadDevice::nvme,
       "/zero_optimization/offload_optimizer/device",
       "none or cpu",
       "nvme");
  need(config.offload_parameter.device != OffloadDevice::nvme,
       "/zero_optimization/offload_param/device",
       "none or cpu",
       "nvme");
  return problems;
}

}  // namespace zeroplan
