// Memory, seconds and resumes of a checkpoint. Files: checkpoint_files.cpp.
#include "model/predict/checkpoint.hpp"

#include <algorithm>

#include "model/engine/buffers.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/engine/partition.hpp"
#include "model/engine/transients.hpp"
#include "model/predict/host_memory.hpp"
#include "model/releases.hpp"
#include "model/step/kernel_workspaces.hpp"
#include "model/step/outside_passes.hpp"

namespace zeroplan {
namespace {

// One core's torch.save and torch.load, to and from memory: pickle, checksums, copies and page
// faults, bytes a second of processor time. Measured with torch 2.11.0 on a busy virtual machine's
// EPYC: 0.9 (0.5 to 0.9) and 0.4 (0.4 to 0.6) GB/s, tests/reference/checkpoints/rate.py.
constexpr BytesPerSecond kSaveRate = BytesPerSecond::of(0.9e9);
constexpr BytesPerSecond kLoadRate = BytesPerSecond::of(0.5e9);

// ds_to_universal.py's own numbers of processes (parse_arguments).
constexpr std::int64_t kExtractWorkers = 4;
constexpr std::int64_t kMergeWorkers = 2;

bool is_trainers(const Plan& plan) { return plan.workload.frontend == Frontend::hf_trainer; }

// What the parts below share.
struct Rank {
  const Plan& plan;
  std::vector<EngineBuffer> buffers;
  std::int64_t on_node = 1;  // ranks of a node
  Bytes host;                // of a node between steps
  Bytes gpu;                 // of a rank between steps
  Bytes weights;             // of the whole model as its file has them
  Elements largest_parameter;
  Elements largest_module;
};

Rank rank_of(const Plan& plan) {
  Rank rank{.plan = plan,
            .buffers = engine_buffers(plan.engine, plan.engine_parameters),
            .on_node = plan.cluster.gpus_per_node(),
            .host = {},
            .gpu = {},
            .weights = {},
            .largest_parameter = {},
            .largest_module = {}};
  rank.host = host_between_steps(plan, rank.buffers);
  rank.gpu = bytes_at(rank.buffers,
                      BufferPlace::gpu,
                      EngineMoment::after_step,
                      plan.engine.gradient_accumulation_steps);
  rank.gpu += kernel_workspaces(plan).total();
  for (const EngineParameter& parameter : plan.engine_parameters) {
    rank.weights += parameter.numel * parameter.own_dtype.value_or(plan.engine.model_dtype);
    rank.largest_parameter = std::max(rank.largest_parameter, parameter.numel);
  }
  for (const Module& module : plan.model->modules) {
    Elements own;
    for (const int index : module.parameters) {
      own += plan.engine_parameters[static_cast<std::size_t>(index)].numel;
    }
    rank.largest_module = std::max(rank.largest_module, own);
  }
  return rank;
}

// The largest storages on the GPU of what a rank saves: torch.save copies one at a time to the
// host.
struct Staged {
  Bytes states;
  Bytes weights;  // below stage 3, where the module's file has them
};

Staged largest_staged(const Rank& rank) {
  Staged staged;
  for (const EngineBuffer& buffer : rank.buffers) {
    if (buffer.place != BufferPlace::gpu) continue;
    if (buffer.category == MemoryCategory::optimizer_states) {
      staged.states = std::max(staged.states, buffer.bytes);
    } else if (buffer.category == MemoryCategory::parameters && rank.plan.engine.stage < 3) {
      staged.weights = std::max(staged.weights, buffer.bytes);
    }
  }
  return staged;
}

// [K4] What a node stages: rank 0 the module's file, while the others are at their own states.
Bytes native_on_host(const Rank& rank) {
  const Staged staged = largest_staged(rank);
  const std::int64_t others = partitions_states(rank.plan) ? rank.on_node - 1 : 0;
  return std::max(staged.states, staged.weights) + staged.states * others;
}

// Copies of frozen weights that every rank makes before it is asked whether it writes them
// (engine.py _get_zero_frozen_param_attributes).
Bytes frozen_copies(const Rank& rank) {
  Bytes sum;
  const int ranks = partition_ranks(rank.plan.engine);
  for (const EngineParameter& parameter : rank.plan.engine_parameters) {
    if (parameter.trainable) continue;
    const Elements here =
        rank.plan.engine.stage == 3 ? partitioned_numel(parameter.numel, ranks) : parameter.numel;
    sum += here * rank.plan.engine.model_dtype;
  }
  return rank.plan.engine.stage >= 2 ? sum : Bytes::zero();
}

// [K4] Host memory that writing the model's weights takes on top, on the node of rank 0.
//   the Trainer, stages 0 to 2: every rank clones the whole state dict to the host
//   (accelerate get_state_dict): r P w. Stage 3: rank 0 alone gathers it: P w.
//   A loop of the user's: torch.save copies a storage at a time; stage 3 gathers as above.
Bytes model_on_host(const Rank& rank, bool adapters) {
  const EngineConfig& engine = rank.plan.engine;
  if (engine.stage == 3) {
    Bytes gathered;
    for (const EngineParameter& parameter : rank.plan.engine_parameters) {
      if (adapters && !parameter.trainable) continue;
      gathered += parameter.numel * parameter.own_dtype.value_or(engine.model_dtype);
    }
    return gathered;
  }
  return is_trainers(rank.plan) ? rank.weights * rank.on_node : largest_staged(rank).weights;
}

// What one rank and one node write at most: rank 0's files lie on the first node with its share of
// the others'.
struct Moved {
  Bytes of_rank;
  Bytes of_node;
};

Moved moved_by(const Plan& plan, const CheckpointContent& content) {
  Moved moved;
  for (const CheckpointFiles& entry : content.files) {
    const bool alone = entry.written_by == CheckpointWriter::rank_0;
    const std::int64_t writers = alone ? 1 : std::max<std::int64_t>(1, entry.files);
    const std::int64_t here = std::min(writers, plan.cluster.gpus_per_node());
    moved.of_rank += entry.total / writers;
    moved.of_node += entry.total / writers * here;
  }
  return moved;
}

// [K5] Seconds to write (or read): of the slowest rank, what it copies over PCIe and serialises on
// one core; or of the node's storage, if that is slower.
Seconds moving_time(const Plan& plan, const Moved& moved, BytesPerSecond storage, bool writes) {
  const BytesPerSecond core = writes ? kSaveRate : kLoadRate;
  const Seconds rank =
      moved.of_rank / plan.cluster.node.pcie_bandwidth.value + moved.of_rank / core;
  return std::max(rank, moved.of_node / storage, [](Seconds a, Seconds b) {
    return a.seconds() < b.seconds();
  });
}

std::optional<BytesPerSecond> storage_rate(const Plan& plan,
                                           const CheckpointOptions& options,
                                           bool writes) {
  if (options.bandwidth) return options.bandwidth;
  const std::optional<Nvme>& drives = plan.cluster.node.nvme;
  if (!drives) return std::nullopt;
  return writes ? drives->write_bandwidth.value : drives->read_bandwidth.value;
}

CheckpointWork saving(const Rank& rank,
                      const CheckpointPrediction& made,
                      const CheckpointOptions& options) {
  const Plan& plan = rank.plan;
  const bool adapters = plan.workload.method != Method::full && is_trainers(plan);
  CheckpointWork work;
  const Bytes native = native_on_host(rank) +
                       (made.exclude_frozen ? Bytes::zero() : frozen_copies(rank) * rank.on_node);
  const Bytes model = made.model ? model_on_host(rank, adapters) : Bytes::zero();
  work.host_peak = rank.host + std::max(native, model);
  work.gpu_peak = rank.gpu;
  const bool gathers = made.model && plan.engine.stage == 3;
  if (gathers) work.gpu_peak += rank.largest_module * plan.engine.model_dtype;
  CheckpointContent all = made.native;
  if (made.native_written_twice) {
    all.files.insert(all.files.end(), made.native.files.begin(), made.native.files.end());
  }
  if (made.model)
    all.files.insert(all.files.end(), made.model->files.begin(), made.model->files.end());
  const Moved moved = moved_by(plan, all);
  work.bytes = moved.of_node;
  if (const auto rate = storage_rate(plan, options, true)) {
    work.seconds = moving_time(plan, moved, *rate, true);
  }
  return work;
}

// Native: every rank reads the module's file, whole where it is one for all, and then its own of
// states, or with elastic_checkpoint those of all ranks. Each is in host memory while it is copied
// (engine.py _load_checkpoint, _get_all_zero_checkpoint_state_dicts: map_location cpu). What
// several ranks of a node read, its storage gives once and its page cache to the others.
CheckpointWork loading(const Rank& rank,
                       const CheckpointContent& native,
                       const CheckpointOptions& options) {
  const Plan& plan = rank.plan;
  const bool elastic =
      plan.ds_config.boolean(Knob::elastic_checkpoint).value_or(false) && plan.engine.stage < 3;
  Bytes module, states;
  for (const CheckpointFiles& entry : native.files) {
    const bool of_states = entry.path.find("model_states") == std::string::npos;
    Bytes& sum = of_states ? states : module;
    sum += entry.bytes * (of_states && elastic ? entry.files : 1);
  }
  CheckpointWork work;
  work.gpu_peak = rank.gpu;
  work.host_peak = rank.host + std::max(module, states) * rank.on_node;
  const bool shared = plan.engine.stage < 3 && plan.stages.empty();
  const Moved moved{
      module + states,
      (shared ? module : module * rank.on_node) + (elastic ? states : states * rank.on_node)};
  work.bytes = moved.of_node;
  if (const auto rate = storage_rate(plan, options, false)) {
    work.seconds = moving_time(plan, moved, *rate, false);
  }
  return work;
}

// ds_to_universal.py: each worker of the first pass loads one rank's states and writes a file a
// parameter and state, each of the second joins one parameter's. Stage 3's whole file of rank 0 is
// loaded once more. The pieces are removed when all is joined (main, keep_temp_folder).
CheckpointWork converting(const Rank& rank,
                          const CheckpointPrediction& made,
                          const CheckpointOptions& options) {
  const Plan& plan = rank.plan;
  Bytes states, states_of_all, module;
  std::int64_t files = 0;
  for (const CheckpointFiles& entry : made.native.files) {
    if (entry.path.find("optim_states") == std::string::npos) {
      module = std::max(module, entry.bytes);
    } else {
      states = std::max(states, entry.bytes);
      states_of_all += entry.total;
      files += entry.files;
    }
  }
  const Bytes process = Bytes::nearest(plan.coefficients[Coefficient::host_process_bytes]);
  const Bytes parameter = rank.largest_parameter * plan.engine.master_dtype;
  const Bytes first = (states + parameter + process) * std::min(files, kExtractWorkers);
  const Bytes second = (parameter * 2 + process) * kMergeWorkers;
  CheckpointWork work;
  work.host_peak = process + std::max({first, second, module});
  const Bytes pieces = pieces_of(*made.universal);
  const Bytes read = states_of_all + pieces;
  const Bytes written = pieces + made.universal->total();
  work.bytes = read + written;
  const auto reads = storage_rate(plan, options, false);
  const auto writes = storage_rate(plan, options, true);
  if (!reads || !writes) return work;
  const Seconds cores =
      states_of_all / kLoadRate / static_cast<double>(std::min(files, kExtractWorkers)) +
      pieces / kSaveRate / static_cast<double>(std::min(files, kExtractWorkers)) +
      (pieces / kLoadRate + pieces / kSaveRate) / static_cast<double>(kMergeWorkers);
  const Seconds storage = read / *reads + written / *writes;
  work.seconds = cores.seconds() > storage.seconds() ? cores : storage;
  return work;
}

// Universal: of each parameter that a rank owns a part of it reads the whole of all states; in
// stage 3 every rank owns a part of every parameter (universal_checkpoint.py
// load_hp_checkpoint_state, stage3.py load_hp_checkpoint_state_from_checkpoint_dir_stage3).
CheckpointWork loading_universal(const Rank& rank,
                                 const CheckpointPrediction& made,
                                 const CheckpointOptions& options) {
  const Plan& plan = rank.plan;
  Bytes states, module;
  const Bytes all = pieces_of(*made.universal);
  for (const CheckpointFiles& entry : made.native.files) {
    if (entry.path.find("model_states") != std::string::npos) module += entry.bytes;
  }
  Bytes kept;
  if (plan.engine.stage == 3) {
    states = all;
  } else {
    const FlatPartition partition = flat_partition(plan.engine, plan.engine_parameters);
    for (const OwnedSlice& slice : owned_slices(partition, plan.engine.rank)) {
      const Elements whole = partition.numels[static_cast<std::size_t>(slice.parameter)];
      states += whole * plan.engine.master_dtype + whole * plan.engine.optimizer_state_dtype * 2;
      kept += slice.numel * plan.engine.optimizer_state_dtype * 2;
    }
  }
  CheckpointWork work;
  work.gpu_peak = rank.gpu;
  const Bytes parameter = rank.largest_parameter * plan.engine.master_dtype;
  work.host_peak = rank.host + std::max(module, kept + parameter * 2) * rank.on_node;
  const Moved moved{module + states, module + std::min(all, states * rank.on_node)};
  work.bytes = moved.of_node;
  if (const auto rate = storage_rate(plan, options, false)) {
    work.seconds = moving_time(plan, moved, *rate, false);
  }
  return work;
}

void decide_resume(const Plan& plan, CheckpointPrediction& made) {
  const std::string release = to_string(plan.software.deepspeed_release);
  if (!partitions_states(plan)) {
    made.other_ranks = Resume::directly;
    made.resume_reason = "every rank has all states, and one file holds them";
    return;
  }
  made.other_ranks = made.universal ? Resume::by_universal : Resume::never;
  made.resume_reason = made.universal
                           ? phrase(
                                 "DeepSpeed {} refuses a native checkpoint of another number of "
                                 "data-parallel ranks: convert it with ds_to_universal.py and set "
                                 "checkpoint.load_universal",
                                 release)
                           : made.universal_problem;
}

}  // namespace

std::optional<CheckpointPrediction> predict_checkpoint(const Plan& plan,
                                                       const CheckpointOptions& options) {
  if (plan.workload.engine != TrainingEngine::deepspeed) return std::nullopt;
  const Rank rank = rank_of(plan);
  CheckpointPrediction made;
  made.exclude_frozen = excludes_frozen(plan, options);
  made.native = native_checkpoint(plan, options);
  made.model_problem = model_problem(plan);
  made.model = model_checkpoint(plan, options);
  made.native_written_twice = is_trainers(plan) && !made.model;
  made.universal_problem = universal_problem(plan);
  made.bandwidth = storage_rate(plan, options, true);
  made.saving = saving(rank, made, options);
  made.loading = loading(rank, made.native, options);
  if (made.universal_problem.empty()) {
    made.universal = universal_checkpoint(plan, options);
    made.converting = converting(rank, made, options);
    made.converting_disk_peak = std::max(made.universal->total(), pieces_of(*made.universal) * 2);
    made.loading_other = loading_universal(rank, made, options);
  }
  decide_resume(plan, made);
  return made;
}

}  // namespace zeroplan
