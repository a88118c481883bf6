#include "model/predict/host_memory.hpp"

#include <algorithm>
#include <cmath>

#include "model/cost/coefficients.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

constexpr std::int64_t kCheckpointWidth =
    2;  // bytes a weight: checkpoints are published in 16 bits
// transformers writes checkpoints in shards of at most 5 GB (save_pretrained max_shard_size
// before 5.0).
constexpr Bytes kShard = Bytes::of(5'000'000'000);

// The embedded runtime is one C++ process a node, its ranks threads of it: assumed.
constexpr Bytes kEmbeddedProcess = Bytes::mib(64);

Bytes process_bytes(const Plan& plan, std::int64_t ranks) {
  if (plan.workload.engine == TrainingEngine::embedded) return kEmbeddedProcess;
  return Bytes::nearest(plan.coefficients[Coefficient::host_process_bytes]) * ranks;
}

Bytes all_weights(const Plan& plan) {
  Elements sum;
  for (const EngineParameter& parameter : plan.engine_parameters) sum += parameter.numel;
  return sum.times_width(kCheckpointWidth);
}

// Composer and fms-fsdp build on the meta device and initialise shards.
bool partitioned_from_the_start(const Plan& plan) {
  if (!runs_deepspeed(plan.workload)) return plan.workload.implementation != Implementation::hf;
  return plan.engine.stage == 3 && plan.engine.stage3.zero_init;
}

// [H1] While from_pretrained runs, on a node of r ranks, with P parameters of w bytes and shards of
// s bytes:
//   without zero.Init every rank builds the whole model on the host:       r (P w + s)
//   with it, partitions are on the GPU, or on the host where weights are
//   offloaded, and rank 0 (before 4.32 every rank) reads shards:           r p + s
// p: a rank's partitions as allocated. Left out: page cache. A script that loads in fp32 takes
// twice P w: the spread of the load covers it.
Bytes load_bytes(const Plan& plan, const OutsidePasses& outside, std::int64_t ranks) {
  const Bytes shard = std::min(kShard, all_weights(plan));
  const Bytes own = outside.load_peak.host_pageable + outside.load_peak.host_pinned;
  const bool all_read = !partitioned_from_the_start(plan) ||
                        !plan.software.transformers_act(ReleaseRule::rank0_reads_shards);
  return own * ranks + shard * (all_read ? ranks : 1);
}

// [H2] While a checkpoint is written: rank 0 of the job holds the gathered 16-bit weights (stage 3)
// and serialises them shard by shard; every rank stages its largest state tensor of the GPU on the
// host (torch.save copies one storage at a time).
Bytes save_bytes(const Plan& plan,
                 const std::vector<EngineBuffer>& buffers,
                 const OutsidePasses& outside,
                 std::int64_t ranks) {
  const bool deepspeed_gathers = runs_deepspeed(plan.workload) && plan.engine.stage == 3 &&
                                 plan.engine.stage3.gather_16bit_weights_on_save;
  const bool gathers = deepspeed_gathers || plan.workload.engine == TrainingEngine::fsdp;
  Bytes staged;
  for (const EngineBuffer& buffer : buffers) {
    const bool state = buffer.category == MemoryCategory::optimizer_states;
    if (buffer.place == BufferPlace::gpu && state) staged = std::max(staged, buffer.bytes);
  }
  const Bytes weights =
      (gathers ? outside.host_save : Bytes::zero()) + std::min(kShard, all_weights(plan));
  return std::max(weights, staged * ranks);
}

struct HostSums {
  Bytes pinned;
  Bytes pageable;
  Bytes nvme;
};

HostSums host_sums(const std::vector<EngineBuffer>& buffers) {
  HostSums sums;
  for (const EngineBuffer& buffer : buffers) {
    switch (buffer.place) {
      case BufferPlace::host_pinned:
        sums.pinned += buffer.allocated;
        break;
      case BufferPlace::host_pageable:
        sums.pageable += buffer.allocated;
        break;
      case BufferPlace::nvme:
        sums.nvme += buffer.bytes;
        break;
      case BufferPlace::gpu:
        break;
    }
  }
  return sums;
}

// Of the peak: processes, and weights or states by how well each is known.
double relative_sd(const Coefficients& coefficients, const HostMemory& host, Bytes processes) {
  const double own = static_cast<double>(processes.count()) *
                     coefficients.relative_sd(Coefficient::host_process_bytes);
  const Coefficient spread =
      host.peak_phase == Phase::load ? Coefficient::host_load_sd : Coefficient::host_state_sd;
  const double rest = static_cast<double>((host.peak - processes).count()) * coefficients[spread];
  return std::hypot(own, rest) / static_cast<double>(host.peak.count());
}

}  // namespace

Bytes checkpoints_on_host(const Plan& plan, const ModelGraph& graph) {
  if (plan.workload.activation_offload != ActivationOffload::cpu) return Bytes::zero();
  Bytes sum;
  for (const BlockInstance& instance : graph.instances) {
    const Block& block = graph.block_of(instance);
    if (!instance.checkpointed || block.input < 0) continue;
    sum += block.storages[static_cast<std::size_t>(block.input)].bytes;
  }
  const bool parts = plan.ds_config.boolean(Knob::activation_partition_activations).value_or(false);
  return (parts ? sum / plan.degrees.tensor : sum) * live_micro_batches(plan);
}

Bytes host_between_steps(const Plan& plan, const std::vector<EngineBuffer>& buffers) {
  const std::int64_t ranks = plan.cluster.gpus_per_node();
  const HostSums sums = host_sums(buffers);
  return process_bytes(plan, ranks) + (sums.pinned + sums.pageable) * ranks;
}

void predict_host(const Plan& plan,
                  const std::vector<EngineBuffer>& buffers,
                  const OutsidePasses& outside,
                  Bytes activations,
                  MemoryPrediction& prediction) {
  const std::int64_t ranks = plan.cluster.gpus_per_node();
  const HostSums sums = host_sums(buffers);
  const Bytes processes = process_bytes(plan, ranks);
  HostMemory& host = prediction.host;
  host.capacity = plan.cluster.node.host_memory.value;
  host.pinned = sums.pinned * ranks;
  host.load_peak = processes + load_bytes(plan, outside, ranks);
  const Bytes init =
      processes + (outside.init_peak.host_pinned + outside.init_peak.host_pageable) * ranks;
  const Bytes steady = host_between_steps(plan, buffers);
  const std::pair<Phase, Bytes> phases[] = {
      {Phase::load, host.load_peak},
      {Phase::init, init},
      {Phase::backward, steady + activations * ranks},
      {Phase::step, steady + outside.host_step_temporaries * ranks},
      {Phase::save, steady + save_bytes(plan, buffers, outside, ranks)}};
  for (const auto& [phase, bytes] : phases) {
    if (bytes <= host.peak) continue;
    host.peak = bytes;
    host.peak_phase = phase;
  }
  prediction.nvme = sums.nvme * ranks;
  prediction.host_relative_sd = relative_sd(plan.coefficients, host, processes);
}

}  // namespace zeroplan
