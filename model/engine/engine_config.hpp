// Everything the engine policies need to know about a run, resolved: no optionals, no `auto`.
//
// One EngineConfig describes one rank of one DeepSpeed engine. The planner fills it from a Plan,
// the replay command from a recording; every policy in model/engine takes it and nothing else
// besides the parameters. Bucket sizes and limits are in elements, as in ds_config.json.
//
// Symbols of the policies' comments: N = partition_ranks(), G = gradient_accumulation_steps,
// b, c, g, m = width of model, communication, gradient accumulation and master dtype.
// Defaults are those of DeepSpeed 0.19.6 (deepspeed/runtime/zero/config.py DeepSpeedZeroConfig,
// offload_config.py); what depends on the stage (overlap_comm) was decided by the caller.
#pragma once

#include <cstdint>
#include <span>

#include "base/units.hpp"
#include "model/dtype.hpp"
#include "model/newton_schulz.hpp"
#include "model/optimizer_implementation.hpp"
#include "model/release_rule.hpp"
#include "model/software.hpp"

namespace zeroplan {

enum class OffloadDevice { none, cpu, nvme };

// DS_PIN_MEMORY_BACKEND: torch's caching host allocator rounds every allocation up to a power of
// two and never returns it; native is posix_memalign + mlock, exact, not registered with CUDA.
enum class PinBackend { torch_caching, native };

// The optimizer class that runs, i.e. after DeepSpeed replaced the user's choice
// (engine.py _configure_basic_optimizer).
enum class OptimizerKind {
  fused_adam,   // deepspeed.ops.adam.FusedAdam: multi-tensor kernel, no temporaries
  cpu_adam,     // deepspeed.ops.adam.DeepSpeedCPUAdam
  torch_adam,   // torch.optim.Adam / AdamW
  fused_lion,   // deepspeed.ops.lion.FusedLion
  cpu_lion,     // deepspeed.ops.lion.DeepSpeedCPULion
  cpu_adagrad,  // deepspeed.ops.adagrad.DeepSpeedCPUAdagrad
  torch_adagrad,
  fused_lamb,
  sgd,           // torch.optim.SGD without momentum
  sgd_momentum,  // torch.optim.SGD with momentum
  adafactor,     // Hugging Face's, on parameters that ZeRO made one-dimensional
  adamw_8bit,    // bitsandbytes
  muon,          // deepspeed.runtime.zero.muon.MuonWithAuxAdam: Muon, and FusedAdam for the rest
};

struct OffloadOptimizerConfig {
  OffloadDevice device = OffloadDevice::none;
  bool pin_memory = true;  // default false before 0.19.5
  double ratio = 1.0;      // share of sub-groups updated on the CPU (stage 3, Twin-Flow)
  int buffer_count = 4;    // NVMe swap buffers
  bool pipeline_read = false;
  bool pipeline_write = false;
  bool fast_init = false;
};

struct OffloadParameterConfig {
  OffloadDevice device = OffloadDevice::none;
  bool pin_memory = true;
  int buffer_count = 5;
  Elements buffer_size = Elements::of(100'000'000);
  Elements max_in_cpu = Elements::of(1'000'000'000);
};

// Keys that act in stage 3 only.
struct Stage3Config {
  Elements prefetch_bucket = Elements::of(50'000'000);
  Elements parameter_persistence_threshold = Elements::of(100'000);
  Elements model_persistence_threshold = Elements::infinite();
  Elements max_live_parameters = Elements::of(1'000'000'000);
  Elements max_reuse_distance = Elements::of(1'000'000'000);
  Elements sub_group_size = Elements::of(1'000'000'000);  // of partitioned elements
  Elements module_granularity_threshold = Elements::zero();
  bool use_all_reduce_for_fetch = false;
  bool allgather_sequential = false;
  bool memory_efficient_linear = true;
  bool gather_16bit_weights_on_save = false;
  bool zero_init = false;  // the module was built inside zero.Init
  int hpz_partition_size = 1;
  int mics_shard_size = -1;  // > 0: everything is sharded in groups of this many ranks
  bool mics_hierarchical_gather = false;
  bool quantized_weights = false;
  bool quantized_nontrainable_weights = false;
  bool quantized_gradients = false;
};

struct EngineConfig {
  Version release{0, 19, 6};  // of DeepSpeed
  RuleSwitches switched;      // of the rules about it
  // Whether this release does what the rule says.
  bool acts(ReleaseRule rule) const {
    return zeroplan::acts(rule, Package::deepspeed, release, switched);
  }

  int stage = 0;

  // ZeRO partitions over data-parallel times sequence-parallel ranks; with MiCS only
  // mics_shard_size of them share one copy (see partition_ranks()).
  int data_parallel_ranks = 1;  // sequence-parallel ranks included
  int rank = 0;                 // within data_parallel_ranks
  int ranks_per_node = 1;
  int sequence_parallel_ranks = 1;
  bool pipeline = false;
  int gradient_accumulation_steps = 1;

  DType model_dtype = DType::bf16;
  DType communication_dtype = DType::bf16;
  DType gradient_accumulation_dtype = DType::bf16;
  DType master_dtype = DType::fp32;
  DType optimizer_state_dtype = DType::fp32;

  // Gradient reduction.
  Elements reduce_bucket = Elements::of(500'000'000);
  Elements allgather_bucket = Elements::of(500'000'000);  // read only where torch is very old
  bool overlap_comm = false;
  bool reduce_scatter = true;
  bool contiguous_gradients = true;
  bool use_multi_rank_bucket_allreduce = true;
  bool round_robin_gradients = false;

  OffloadOptimizerConfig offload_optimizer;
  OffloadParameterConfig offload_parameter;
  Stage3Config stage3;

  // aio section (deepspeed/runtime/swap_tensor/constants.py).
  Bytes aio_block_size = Bytes::mib(1);
  int aio_parallelism = 1;  // intra_op_parallelism, older: thread_count
  int aio_queue_depth = 8;
  bool aio_use_gds = false;

  OptimizerKind optimizer = OptimizerKind::fused_adam;
  // Of torch's optimizers.
  OptimizerImplementation optimizer_implementation = OptimizerImplementation::for_loop;
  NewtonSchulz newton_schulz = NewtonSchulz::gram;  // of Muon
  double gradient_clipping = 1.0;                   // default 0 before 0.19.3
  bool check_gradient_overflow = true;              // bf16.check_grad_overflow; fp16 always checks
  bool immediate_gradient_update = false;           // bf16.immediate_grad_update (BF16_Optimizer)
  PinBackend pin_backend = PinBackend::torch_caching;
  bool embedded = false;  // carried out by the embedded runtime (embedded.hpp), not by DeepSpeed
};

// One parameter tensor, in the order of module.parameters() (tied weights once).
struct EngineParameter {
  Elements numel;
  bool trainable = true;
  int group = 0;           // index of its optimizer parameter group; without meaning when frozen
  bool used = true;        // false: trainable, but no gradient ever reaches it
  std::int64_t rows = 1;   // size of the first dimension
  bool matrix = true;      // two or more dimensions (vectors are left out of quantised gradients)
  int tensors_built = 1;   // tied weights: how many tensors the modules make before they are tied
  bool quantized = false;  // stored in four bits
  // bitsandbytes keeps its states in fp32 where the Trainer makes the optimizer: an Embedding's.
  bool wide_states = false;
  // Of the weight, its gradient and its optimizer states, where it is not the engine's: adapters.
  std::optional<DType> own_dtype;
  MuonMatrices muon;  // none: Adam updates it
  int place = 0;      // in its group, before the order here: Muon sorts what it updates by size
};

// The format of what is trained; `otherwise` where no parameter has one of its own.
inline DType trained_dtype(std::span<const EngineParameter> parameters, DType otherwise) {
  for (const EngineParameter& parameter : parameters) {
    if (parameter.trainable) return parameter.own_dtype.value_or(otherwise);
  }
  return otherwise;
}

// Takes back what a release does not do whatever its file says: 0.12 runs stage 1 without overlap,
// contiguous buffers and round robin (engine.py _configure_zero_optimizer; with offload the buffers
// are contiguous all the same).
void drop_what_is_ignored(EngineConfig& config);

// N: how many ranks share one copy of the partitioned state.
constexpr int partition_ranks(const EngineConfig& config) {
  return config.stage == 3 && config.stage3.mics_shard_size > 0 ? config.stage3.mics_shard_size
                                                                : config.data_parallel_ranks;
}

// How many ranks reduce gradients together in stage 3. Up to 0.18 the optimizer's group, which with
// MiCS is the shard group (mics.py MiCS_Optimizer.__init__); since 0.19 the group a parameter was
// made with (stage3.py _get_param_partition_group: ds_process_group), which with MiCS is all ranks
// although the shard group holds the weights: a mistake of that release, whose gradients are wrong.
// The embedded runtime does not make it.
int reduction_ranks(const EngineConfig& config);

// This rank's place among them.
inline int reduction_rank(const EngineConfig& config) {
  return config.rank % reduction_ranks(config);
}

// How many neighbours share a secondary partition of the weights (hpZ); 1: there is none.
constexpr int secondary_partition_ranks(const EngineConfig& config) {
  return config.stage == 3 ? config.stage3.hpz_partition_size : 1;
}

// This rank's place in its partition group.
constexpr int partition_rank(const EngineConfig& config) {
  return config.rank % partition_ranks(config);
}

}  // namespace zeroplan
