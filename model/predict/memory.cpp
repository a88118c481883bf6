#include "model/predict/memory.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/cost/coefficients.hpp"
#include "model/cost/context_memory.hpp"
#include "model/engine/buffers.hpp"
#include "model/predict/beside_memory.hpp"
#include "model/predict/host_memory.hpp"
#include "model/predict/torch_memory.hpp"
#include "model/predict/window_memory.hpp"
#include "model/step/outside_passes.hpp"

namespace zeroplan {
namespace {

struct OutsideTorch {
  Bytes bytes;
  double sd = 0.0;  // in bytes
};

// Groups of Megatron and of PipelineModule beside the one of all ranks, each with a communicator
// (megatron/core/parallel_state.py, runtime/pipe/topology.py), and the stages before and after,
// with which a rank only exchanges tensors. How far a group's ranks lie apart says whether a node
// has two.
void add_model_parallel_groups(const Plan& plan, CommunicatorUse& use) {
  const Degrees& degrees = plan.degrees;
  const ParallelLayout layout = plan.layout();
  const auto add = [&](bool used, std::int64_t stride) {
    if (!used) return;
    ++(layout.share_a_node(stride) ? use.communicators : use.light_communicators);
  };
  add(degrees.tensor > 1, 1);
  add(degrees.data > 1, layout.data_stride());
  add(degrees.tensor * degrees.pipeline > 1, degrees.tensor > 1 ? 1 : layout.stage_stride());
  use.light_communicators += std::min<std::int64_t>(degrees.pipeline - 1, 2);
}

// CUDA context and NCCL's buffers. A process group that has run a collective has its own
// communicator: the data-parallel one, those that stage 3 partitions over as well, and those of
// models that several ranks share.
OutsideTorch outside_torch(const Plan& plan) {
  CommunicatorUse use;
  use.ranks = plan.degrees.world;
  use.nodes = plan.cluster.nodes;
  use.all_to_all_ranks = plan.degrees.sequence;
  if (plan.workload.implementation == Implementation::megatron || plan.degrees.pipeline > 1) {
    add_model_parallel_groups(plan, use);
  }
  if (plan.workload.engine == TrainingEngine::fsdp) {
    // Hybrid sharding has a group inside and one across (_init_utils.py _init_process_group_state).
    use.communicators += plan.fsdp.shard_ranks < plan.fsdp.ranks ? 2 : 0;
  } else if (runs_zero3(plan)) {
    use.communicators += plan.engine.stage3.hpz_partition_size > 1 ? 1 : 0;
    // The shards' and the replicas' (mics_utils.py create_mics_comm_groups), beside that of all.
    const int shard = plan.engine.stage3.mics_shard_size;
    use.communicators += shard > 0 && shard < plan.engine.data_parallel_ranks ? 2 : 0;
  }
  const Coefficients& coefficients = plan.coefficients;
  const UncertainBytes context = cuda_context(plan.cluster.gpu, plan.software.torch, coefficients);
  const UncertainBytes nccl =
      nccl_overhead(plan.cluster.gpu, plan.cluster.node.topology, use, coefficients);
  const auto sd = [](const UncertainBytes& bytes) {
    return static_cast<double>(bytes.value.count()) * bytes.relative_sd;
  };
  return {context.value + nccl.value, std::hypot(sd(context), sd(nccl))};
}

// Reserved and not allocated, beside fragmentation: copies of stage 3's bucket reductions on their
// own stream. That stream's blocks serve no other, and up to two reductions may be outstanding
// beside the one being issued (stage3.py max_param_reduce_events), whose copies are freed but not
// yet reusable; one bucket's copies on average. Under pressure the allocator waits for such frees
// and gives the blocks back (CUDACachingAllocator.cpp release_cached_blocks), so a fit does not
// need them.
Bytes deferred_frees(const EngineConfig& config, const WindowMemory& window) {
  return config.stage == 3 && config.overlap_comm ? window.largest_flush : Bytes::zero();
}

// Context, NCCL and the gap between reserved and allocated, on top of the allocated peak. A CPU
// rank's memory is what is allocated.
void close_totals(const Plan& plan, const OutsideTorch& outside, Bytes deferred, GpuMemory& gpu) {
  Bytes peak;
  for (std::size_t i = 0; i < kPhaseCount; ++i) {
    const Bytes of_phase = sum(gpu.by_phase[i]);
    if (of_phase <= peak) continue;
    peak = of_phase;
    gpu.peak_phase = static_cast<Phase>(i);
  }
  gpu.peak_allocated = peak;
  gpu.breakdown_at_peak = gpu.by_phase[static_cast<std::size_t>(gpu.peak_phase)];
  const Bytes varies = std::max(Bytes::zero(), peak - gpu.static_allocated);
  const Bytes gap =
      deferred + Bytes::nearest(static_cast<double>(varies.count()) *
                                plan.coefficients[Coefficient::allocator_fragmentation]);
  // Reserved memory is a whole number of 2 MiB segments.
  gpu.peak_reserved =
      plan.cluster.gpu.is_cpu() ? peak : Bytes::of(round_up((peak + gap).count(), 2 << 20));
  at(gpu.breakdown_at_peak, MemoryCategory::cuda_context) = outside.bytes;
  at(gpu.breakdown_at_peak, MemoryCategory::fragmentation) = gpu.peak_reserved - peak;
  gpu.replayed_reserved = gpu.peak_reserved;
  gpu.peak_total = gpu.peak_reserved + outside.bytes;
}

// What quantised gathers and reductions (zero_quantized_weights, zero_quantized_gradients) hold
// beside the weights is not described: 8-bit buffers and their scales with the dequantised copies,
// until the last weight of a bucket is used. Between nothing and as much as is gathered, which
// autograd may hold on to after the engine has let it go (memory_efficient_linear false); half of
// that as a standard deviation, in bytes.
double quantization_sd(const EngineConfig& config, const StepWork& work, const GpuMemory& gpu) {
  if (!config.stage3.quantized_weights && !config.stage3.quantized_gradients) return 0.0;
  Elements live;
  for (const LiveElements& at_pass : work.gathers.peaks) live = std::max(live, at_pass.parameters);
  const auto parameters = [&](Phase phase) {
    return at(gpu.by_phase[static_cast<std::size_t>(phase)], MemoryCategory::parameters);
  };
  const Bytes gathered =
      std::max(live * config.model_dtype, parameters(Phase::backward) - parameters(Phase::init));
  return 0.5 * static_cast<double>(gathered.count());
}

// Activations and logits share the graph's spread, the engine's buffers the engine's: within each
// group an error has one cause (a tensor kept longer than thought, a buffer of another size) and
// adds up; the groups are independent.
MemorySpread spread_of(const Plan& plan,
                       const OutsideTorch& outside,
                       Bytes deferred,
                       double quantization,
                       const GpuMemory& gpu) {
  const Coefficients& coefficients = plan.coefficients;
  const auto bytes = [&](MemoryCategory category) {
    return static_cast<double>(at(gpu.breakdown_at_peak, category).count());
  };
  const double activations = bytes(MemoryCategory::activations) + bytes(MemoryCategory::logits) +
                             bytes(MemoryCategory::temporaries);
  const double states = bytes(MemoryCategory::parameters) + bytes(MemoryCategory::gradients) +
                        bytes(MemoryCategory::optimizer_states) +
                        bytes(MemoryCategory::communication_buffers);
  const double waiting = static_cast<double>(deferred.count());
  const double gap = bytes(MemoryCategory::fragmentation) - waiting;
  MemorySpread spread;
  spread.activations = activations * coefficients[Coefficient::activation_model_sd];
  spread.states = states * coefficients[Coefficient::model_state_sd];
  spread.gap = gap * coefficients.relative_sd(Coefficient::allocator_fragmentation);
  spread.waiting = waiting * coefficients[Coefficient::deferred_free_sd];
  spread.outside = outside.sd;
  spread.quantization = quantization;
  if (plan.workload.implementation == Implementation::megatron) {
    spread.code = static_cast<double>(gpu.peak_allocated.count()) *
                  coefficients[Coefficient::megatron_memory_sd];
  }
  return spread;
}

double total_relative_sd(const MemorySpread& spread, const GpuMemory& gpu) {
  double squares = 0.0;
  for (const double sd : {spread.activations,
                          spread.states,
                          spread.gap,
                          spread.waiting,
                          spread.outside,
                          spread.quantization,
                          spread.code}) {
    squares += sd * sd;
  }
  return std::sqrt(squares) / static_cast<double>(gpu.peak_total.count());
}

// What every engine's memory consists of.
struct EngineMemory {
  std::vector<EngineBuffer> buffers;
  WindowMemory window;
  OutsidePasses outside;
  Bytes deferred;
};

EngineMemory engine_memory(const Plan& plan, const StepWork& work, const OutsideTorch& outside) {
  if (!runs_deepspeed(plan.workload)) {
    TorchEngineMemory memory = torch_engine_memory(plan, work);
    return {std::move(memory.buffers), memory.window, memory.outside, memory.deferred};
  }
  EngineConfig config = plan.engine;
  config.rank = heaviest_rank(config, plan.engine_parameters);
  EngineMemory memory;
  memory.buffers = engine_buffers(config, plan.engine_parameters);
  memory.window = window_memory(plan, work, config, memory.buffers);
  memory.outside =
      outside_passes(plan, config, memory.buffers, plan.cluster.gpu.memory.value - outside.bytes);
  if (!plan.cluster.gpu.is_cpu()) memory.deferred = deferred_frees(config, memory.window);
  return memory;
}

constexpr std::array kMemoryCoefficients = {Coefficient::allocator_fragmentation,
                                            Coefficient::cuda_context_bytes_per_sm,
                                            Coefficient::cuda_context_split_ratio,
                                            Coefficient::cuda_context_eager_ratio,
                                            Coefficient::nccl_ring_bytes,
                                            Coefficient::nccl_pair_bytes,
                                            Coefficient::nccl_further_bytes,
                                            Coefficient::nccl_pcie_ring_bytes,
                                            Coefficient::nccl_light_bytes,
                                            Coefficient::nccl_peer_bytes,
                                            Coefficient::host_process_bytes};

PoolChanges pool_changes(const Plan& plan, const ModelGraph& graph, const SwapPoolUse& use) {
  const auto does = [&](const EngineConfig& config) {
    const SwapPoolUse changed = swap_pool_use(plan, graph, config);
    return !changed.short_of && !changed.twice;
  };
  PoolChanges changes;
  EngineConfig config = plan.engine;
  config.stage3.max_reuse_distance = Elements::zero();
  changes.without_reuse = does(config);
  config = plan.engine;
  config.stage3.prefetch_bucket = Elements::zero();
  changes.without_prefetch = does(config);
  if (!use.twice) changes.more_buffers = enough_swap_buffers(plan, graph, use.most);
  return changes;
}

// [H3] Host and GPU have one pool: to each is left what the operating system and the other do not
// hold. While steps run the GPU's share decides; while weights load or are saved, the host's.
void divide_pool(const Plan& plan, Bytes outside, MemoryPrediction& prediction) {
  GpuMemory& gpu = prediction.gpu;
  HostMemory& host = prediction.host;
  const Bytes pool = gpu.capacity - plan.cluster.gpu.pool_system->value;
  gpu.capacity = std::max(pool - host.step_peak, Bytes::zero());
  Bytes on_gpu;
  if (host.peak_phase == Phase::load)
    on_gpu = sum(gpu.by_phase[static_cast<std::size_t>(Phase::load)]);
  if (host.peak_phase == Phase::save) on_gpu = gpu.static_allocated;
  host.capacity = std::max(pool - on_gpu - outside, Bytes::zero());
}

}  // namespace

std::span<const Coefficient> memory_coefficients() { return kMemoryCoefficients; }

Bytes outside_torch_bytes(const Plan& plan) { return outside_torch(plan).bytes; }

MemoryPrediction predict_memory_without_pool(const Plan& plan, const StepWork& work) {
  const OutsideTorch outside = outside_torch(plan);
  const EngineMemory memory = engine_memory(plan, work, outside);
  MemoryPrediction prediction;
  GpuMemory& gpu = prediction.gpu;
  gpu.capacity = plan.cluster.gpu.memory.value;
  const auto phase = [&](Phase which) -> CategoryBytes& {
    return gpu.by_phase[static_cast<std::size_t>(which)];
  };
  phase(Phase::load) = memory.outside.load;
  phase(Phase::init) = memory.outside.init;
  phase(Phase::forward) = memory.window.forward;
  phase(Phase::backward) = memory.window.backward;
  phase(Phase::step) = memory.window.step;
  at(phase(Phase::step), MemoryCategory::temporaries) += memory.outside.step_temporaries;
  phase(Phase::save) = memory.outside.save;
  for (const Phase outside_windows : {Phase::load, Phase::init, Phase::save}) {
    at(phase(outside_windows), MemoryCategory::parameters) += work.graph.buffers;
  }
  gpu.static_allocated = memory.window.between_steps;
  BesideMemory beside;
  if (plan.beside != nullptr) {
    beside = beside_memory(plan);
    add_beside(plan, work, beside, gpu);
  }
  close_totals(plan, outside, memory.deferred, gpu);
  prediction.spread =
      spread_of(plan, outside, memory.deferred, quantization_sd(plan.engine, work, gpu), gpu);
  prediction.relative_sd = total_relative_sd(prediction.spread, gpu);
  prediction.gpu_needed = gpu.peak_total - memory.deferred;
  predict_host(
      plan, memory.buffers, memory.outside, checkpoints_on_host(plan, work.graph), prediction);
  const Bytes others = beside.host * plan.cluster.gpus_per_node();
  prediction.host.pinned += others;
  prediction.host.peak += others;
  prediction.host.step_peak += others;
  if (plan.cluster.gpu.shares_host_memory()) divide_pool(plan, outside.bytes, prediction);
  return prediction;
}

MemoryPrediction predict_memory(const Plan& plan, const StepWork& work) {
  MemoryPrediction prediction = predict_memory_without_pool(plan, work);
  if (plan.engine.stage == 3 && !plan.engine.embedded &&
      plan.engine.offload_parameter.device == OffloadDevice::nvme) {
    prediction.weights_pool = swap_pool_use(plan, work.graph, plan.engine);
  }
  if (prediction.weights_pool.short_of || prediction.weights_pool.twice) {
    prediction.pool_changes = pool_changes(plan, work.graph, prediction.weights_pool);
  }
  return prediction;
}

}  // namespace zeroplan
