#include "model/predict/host_memory.hpp"

#include <algorithm>
#include <cmath>
#include <string>

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

// Weights that bitsandbytes quantises are read to the GPU, except where they are sharded later and
// transformers is older than 5 (resolve_adapters.cpp).
bool read_to_gpu(const Plan& plan) {
  if (plan.workload.method != Method::qlora) return false;
  if (runs_deepspeed(plan.workload)) {
    return plan.engine.stage != 3 ||
           plan.software.transformers_act(ReleaseRule::leaves_four_bits_on_gpu);
  }
  return plan.workload.engine == TrainingEngine::ddp || plan.loads_whole;
}

// The format that from_pretrained is asked for.
DType loaded_dtype(const Plan& plan) {
  if (runs_deepspeed(plan.workload)) return plan.engine.model_dtype;
  return plan.workload.engine == TrainingEngine::ddp ? plan.ddp.weight_dtype
                                                     : plan.fsdp.loaded_dtype;
}

// The whole model in that format.
Bytes loaded_weights(const Plan& plan) {
  Elements sum;
  for (const EngineParameter& parameter : plan.engine_parameters) sum += parameter.numel;
  return sum * loaded_dtype(plan);
}

// A checkpoint is taken to be in safetensors, in bf16 where its config names no format.
bool stays_mapped(const Plan& plan) {
  const Software& software = plan.software;
  const DType loaded = loaded_dtype(plan);
  const std::string stored = plan.whole_model->torch_dtype.value_or("bfloat16");
  const bool as_stored = stored == (loaded == DType::bf16   ? "bfloat16"
                                    : loaded == DType::fp16 ? "float16"
                                                            : "float32");
  return as_stored && plan.workload.implementation == Implementation::hf &&
         software.transformers_act(ReleaseRule::maps_weights) &&
         !software.transformers_act(ReleaseRule::copies_slices);
}

// Weights that from_pretrained joins of several tensors of the checkpoint, the largest beside the
// parts that it is joined of.
Bytes converted_weights(const Plan& plan) {
  if (plan.engine.embedded || plan.workload.implementation != Implementation::hf ||
      plan.workload.loading == Loading::converted ||
      !plan.software.transformers_act(ReleaseRule::fuses_experts)) {
    return Bytes::zero();
  }
  Elements sum, largest;
  for (const Parameter& parameter : plan.model->parameters) {
    if (!parameter.converted) continue;
    sum += parameter.numel;
    largest = std::max(largest, parameter.numel);
  }
  return (sum + largest) * loaded_dtype(plan);
}

// FSDP's shards of four-bit weights wait on the host.
bool quantises_on_host(const Plan& plan) {
  return plan.workload.engine == TrainingEngine::fsdp && plan.workload.method == Method::qlora;
}

// Ranks of a node that read: under FSDP the first alone, which the others get the weights from
// (cpu_ram_efficient_loading), but every rank of weights that transformers 5 quantises.
std::int64_t loading_ranks(const Plan& plan) {
  const bool quantised = quantises_on_host(plan) &&
                         plan.software.transformers_act(ReleaseRule::leaves_four_bits_on_gpu);
  const bool first_alone = plan.workload.engine == TrainingEngine::fsdp &&
                           plan.workload.loading == Loading::usual && !quantised;
  return first_alone ? 1 : plan.cluster.gpus_per_node();
}

// A rank's weights on the host, without those that are mapped to the checkpoint's files.
Bytes built_weights(const Plan& plan) {
  if (read_to_gpu(plan)) return Bytes::zero();
  if (quantises_on_host(plan)) {
    Bytes sum;
    for (const EngineParameter& parameter : plan.engine_parameters) {
      sum += whole_bytes(plan.fsdp, parameter);
    }
    return sum;
  }
  return stays_mapped(plan) ? converted_weights(plan) : loaded_weights(plan);
}

// Zeros that the ranks of a node hold which do not read, until they get the weights of the one that
// does.
Bytes filled_weights(const Plan& plan) {
  const std::int64_t others = plan.cluster.gpus_per_node() - loading_ranks(plan);
  if (others == 0 || !plan.software.transformers_act(ReleaseRule::fills_other_ranks)) {
    return Bytes::zero();
  }
  return loaded_weights(plan) * others;
}

// [H1] While from_pretrained runs, on a node of r ranks, with P parameters of w bytes:
//   without zero.Init every rank builds the whole model on the host, under FSDP the node's first:
//                                                                             r P w
//   but nothing where the files' format is the one asked for (maps_weights);
//   the node's other ranks fill theirs with zeros in some releases (fills_other_ranks): (r - 1) P w
//   with it, partitions are on the GPU, or on the host where weights are offloaded:       r p
//   and from transformers 5 on every rank converts all experts that stand one by one in the files,
//   x of P, its largest tensor t beside what it is made of:                        r (x + t) w
// p: a rank's partitions as allocated. Left out: page cache, and shards that are read: safetensors
// maps them. Measured: RssAnon of from_pretrained, 0.45 B and a mixture of 0.5 B parameters.
Bytes load_bytes(const Plan& plan, const OutsidePasses& outside, std::int64_t ranks) {
  if (plan.engine.embedded || partitioned_from_the_start(plan)) {
    const Bytes own = outside.load_peak.host_pageable + outside.load_peak.host_pinned;
    return (own + converted_weights(plan)) * ranks;
  }
  return built_weights(plan) * loading_ranks(plan) + filled_weights(plan);
}

// [H2] While a checkpoint is written: rank 0 of the job holds the gathered 16-bit weights (stage 3)
// and serialises them shard by shard; every rank stages its largest state tensor of the GPU on the
// host (torch.save copies one storage at a time).
Bytes save_bytes(const Plan& plan,
                 const std::vector<EngineBuffer>& buffers,
                 const OutsidePasses& outside,
                 std::int64_t ranks) {
  const bool deepspeed_gathers =
      runs_zero3(plan) && plan.engine.stage3.gather_16bit_weights_on_save;
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
double relative_sd(const Plan& plan, const HostMemory& host, Bytes processes) {
  const Coefficients& coefficients = plan.coefficients;
  const double own = static_cast<double>(processes.count()) *
                     coefficients.relative_sd(Coefficient::host_process_bytes);
  const bool by_script =
      host.peak_phase == Phase::load && !partitioned_from_the_start(plan) && !stays_mapped(plan);
  const Coefficient spread = by_script ? Coefficient::host_load_sd : Coefficient::host_state_sd;
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

bool fills_while_loading(const Plan& plan) {
  return !partitioned_from_the_start(plan) && filled_weights(plan) > Bytes::zero();
}

bool converts_while_loading(const Plan& plan) {
  return !read_to_gpu(plan) && converted_weights(plan) > Bytes::zero();
}

std::optional<Phrase> loading_sentence(const Plan& plan) {
  if (read_to_gpu(plan)) return {};
  const std::int64_t ranks = plan.cluster.gpus_per_node();
  const bool shards = partitioned_from_the_start(plan);
  if (fills_while_loading(plan)) {
    return phrase(
        "while they load, the ranks of a node but the first fill {:.1f} GiB of the host with zeros "
        "in place of weights, as transformers 5.6 to 5.22 does under FSDP; with "
        "fsdp_cpu_ram_efficient_loading: false each maps the files (--loading every-rank)",
        filled_weights(plan).gib());
  }
  const Bytes converted = converted_weights(plan) * loading_ranks(plan);
  if (converted > Bytes::zero() && (shards || stays_mapped(plan))) {
    return phrase(
        "while they load, the ranks of a node make {:.1f} GiB of experts on the host of tensors "
        "that stand one by one in the checkpoint, as transformers from 5 on does; a copy that "
        "save_pretrained(save_original_format=False) wrote is mapped instead (--loading converted)",
        converted.gib());
  }
  const Bytes built = all_weights(plan) * loading_ranks(plan);
  if (shards || !stays_mapped(plan) ||
      built + process_bytes(plan, ranks) <= plan.cluster.node.host_memory.value) {
    return {};
  }
  return phrase(
      "weights stay mapped to their safetensors files while they are loaded: a script that asks "
      "for "
      "another format takes {:.0f} GiB of each host or more",
      built.gib());
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
    if (phase == Phase::backward || phase == Phase::step) {
      host.step_peak = std::max(host.step_peak, bytes);
    }
    if (bytes <= host.peak) continue;
    host.peak = bytes;
    host.peak_phase = phase;
  }
  prediction.nvme = sums.nvme * ranks;
  prediction.host_relative_sd = relative_sd(plan, host, processes);
}

}  // namespace zeroplan
