#include "model/engine/embedded.hpp"

#include <algorithm>
#include <string>

#include "model/engine/swapping.hpp"

namespace zeroplan {
namespace {

// The release of DeepSpeed whose policies the embedded runtime follows.
constexpr Version kFollowedRelease{0, 19, 6};

Diagnostic problem(std::string pointer, Phrase expected, Phrase got, Phrase hint) {
  return {.file = "ds_config",
          .pointer = std::move(pointer),
          .expected = std::move(expected.append(" (embedded runtime)")),
          .got = std::move(got),
          .hint = std::move(hint)};
}

// Swapping that its buffers do not suffice for, and what is not done.
void check_swapping(const EngineConfig& config,
                    std::span<const EngineParameter> parameters,
                    std::vector<Diagnostic>& problems) {
  const OffloadOptimizerConfig& optimizer = config.offload_optimizer;
  const OffloadParameterConfig& weights = config.offload_parameter;
  const bool states_swap = optimizer.device == OffloadDevice::nvme;
  const bool weights_swap = weights.device == OffloadDevice::nvme;
  if (config.stage != 3 || (!states_swap && !weights_swap)) return;
  if (config.aio_use_gds) problems.push_back(problem("/aio/use_gds", "false", "true", ""));
  const std::vector<SubGroup> groups = sub_groups(config, parameters);
  if (states_swap) {
    const std::string section = "/zero_optimization/offload_optimizer/";
    if (optimizer.ratio < 1.0) {
      problems.push_back(problem(section + "ratio", "1 with device nvme", "less", ""));
    }
    const OptimizerSwap swap = optimizer_swap(config, parameters, groups);
    const bool swaps =
        std::find(swap.swapped.begin(), swap.swapped.end(), true) != swap.swapped.end();
    if (swaps && swap.buffers < swap.buffers_needed) {
      problems.push_back(
          problem(section + "buffer_count",
                  phrase("at least {}", swap.buffers_needed),
                  std::to_string(swap.buffers),
                  "each is one sub-group: a smaller sub_group_size makes them smaller"));
    }
  }
  if (!weights_swap) return;
  const ParameterSwap swap = parameter_swap(config, parameters, groups);
  const std::string section = "/zero_optimization/offload_param/";
  Elements largest;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (!swap.swapped[p]) continue;
    largest = std::max(largest, partitioned_numel(parameters[p].numel, partition_ranks(config)));
  }
  if (largest > weights.buffer_size) {
    problems.push_back(
        problem(section + "buffer_size",
                phrase("at least {} elements, the largest partition", largest.count()),
                std::to_string(weights.buffer_size.count()),
                ""));
  }
  if (largest > Elements::zero() && weights.buffer_count < 1) {
    problems.push_back(
        problem(section + "buffer_count", "at least 1", std::to_string(weights.buffer_count), ""));
  }
}

// Masters and moments are both fp32, or both bf16 on the device.
void check_master(const EngineConfig& config, std::vector<Diagnostic>& problems) {
  if (config.master_dtype == DType::fp32) return;
  if (config.master_dtype == DType::fp16) {
    problems.push_back(problem("/fp16/fp16_master_weights_and_grads", "false", "true", ""));
    return;
  }
  if (config.offload_optimizer.device != OffloadDevice::none) {
    problems.push_back(
        problem("/bf16/bf16_master_weights_and_grads", "false with offload_optimizer", "true", ""));
  } else if (config.optimizer_state_dtype != DType::bf16) {
    problems.push_back(problem("/bf16/bf16_optimizer_states",
                               "true with bf16_master_weights_and_grads",
                               "false",
                               "DeepSpeed asks for it, too, where nothing is offloaded"));
  }
}

}  // namespace

void make_embedded(EngineConfig& config) {
  config.embedded = true;
  config.release = kFollowedRelease;
  config.pin_backend = PinBackend::native;
  config.contiguous_gradients = true;
  if (config.stage < 3) config.gradient_accumulation_dtype = config.model_dtype;
  if (config.stage == 0 || config.model_dtype == DType::fp32) config.master_dtype = DType::fp32;
  if (config.master_dtype == DType::fp32) config.optimizer_state_dtype = DType::fp32;
  config.stage3.memory_efficient_linear = true;
  config.stage3.zero_init = true;
  if (config.optimizer == OptimizerKind::torch_adam) config.optimizer = OptimizerKind::fused_adam;
  config.optimizer_implementation = OptimizerImplementation::for_loop;
}

std::vector<Diagnostic> not_embedded(const EngineConfig& config,
                                     std::span<const EngineParameter> parameters) {
  std::vector<Diagnostic> problems;
  const auto need = [&](bool fine, std::string pointer, Phrase expected, Phrase got) {
    if (fine) return;
    problems.push_back(problem(std::move(pointer), std::move(expected), std::move(got), ""));
  };
  check_master(config, problems);
  const Stage3Config& stage3 = config.stage3;
  const bool adam =
      config.optimizer == OptimizerKind::fused_adam || config.optimizer == OptimizerKind::cpu_adam;
  need(adam, "/optimizer/type", "AdamW", "another optimizer");
  need(!config.pipeline, "/pipeline", "no pipeline", "pipeline stages");
  need(config.sequence_parallel_ranks == 1, "/sequence_parallel_size", "1", "more");
  const int ranks = config.data_parallel_ranks;
  const Phrase divisor = phrase("a divisor of {} ranks", ranks);
  const bool shards = config.stage == 3 && stage3.mics_shard_size > 0;
  need(!shards || ranks % stage3.mics_shard_size == 0,
       "/zero_optimization/mics_shard_size",
       divisor,
       std::to_string(stage3.mics_shard_size));
  // mics.py allreduce_mics_shard_grads: with one shard nothing is summed over replicas.
  const bool replicates = shards && stage3.mics_shard_size < ranks;
  need(!replicates || config.offload_optimizer.device == OffloadDevice::none,
       "/zero_optimization/mics_shard_size",
       "-1 with offload_optimizer",
       std::to_string(stage3.mics_shard_size));
  need(!shards || !stage3.mics_hierarchical_gather,
       "/zero_optimization/mics_hierarchical_params_gather",
       "false",
       "true");
  const bool secondary_partitions = secondary_partition_ranks(config) > 1;
  need(!secondary_partitions || ranks % secondary_partition_ranks(config) == 0,
       "/zero_optimization/zero_hpz_partition_size",
       divisor,
       std::to_string(stage3.hpz_partition_size));
  need(!secondary_partitions || config.offload_parameter.device != OffloadDevice::nvme,
       "/zero_optimization/zero_hpz_partition_size",
       "1 with weights on nvme",
       std::to_string(stage3.hpz_partition_size));
  need(!secondary_partitions || !shards,
       "/zero_optimization/zero_hpz_partition_size",
       "1 with mics_shard_size",
       std::to_string(stage3.hpz_partition_size));
  need(!stage3.quantized_weights, "/zero_optimization/zero_quantized_weights", "false", "true");
  need(!stage3.quantized_gradients, "/zero_optimization/zero_quantized_gradients", "false", "true");
  check_swapping(config, parameters, problems);
  return problems;
}

}  // namespace zeroplan
