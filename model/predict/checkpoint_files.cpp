// Which files a checkpoint has, and how many bytes.
//
// Sources (DeepSpeed 0.19.6 unless said): runtime/engine.py _get_ckpt_name, _get_zero_ckpt_name,
// _save_checkpoint, _save_zero_checkpoint, _configure_checkpointing, save_16bit_model;
// runtime/zero/stage_1_and_2.py, stage3.py, runtime/bf16_optimizer.py, runtime/fp16/*.py
// state_dict; runtime/pipe/module.py save_state_dict; checkpoint/ds_to_universal.py. transformers
// trainer.py save_model, _save_optimizer_and_scheduler; modeling_utils.py save_pretrained.
#include "model/predict/checkpoint_files.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.hpp"
#include "model/engine/buffers.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/engine/partition.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

class ContentList {
 public:
  void add(CheckpointFiles entry) { files_.push_back(std::move(entry)); }
  std::vector<CheckpointFiles> take() { return std::move(files_); }

 private:
  std::vector<CheckpointFiles> files_;
};

// What torch.save adds to tensors. Per storage a record of its zip file, aligned to 64 bytes, with
// an entry of its directory (caffe2/serialize/inline_container.cc) and of the pickle; per name of a
// tensor its shapes and places in the pickle; and once the rest, of which DeepSpeed's settings are
// most. Fitted to tests/reference/checkpoints, whose names are short; kilobytes whatever the sizes.
constexpr std::int64_t kBytesPerStorage = 320;
struct Around {
  std::int64_t file;    // bytes once
  std::int64_t tensor;  // bytes a name
};
constexpr Around kModuleFile = {1500, 280};  // state dict, shapes, settings
constexpr Around kStatesFile = {3000, 25};   // param_slice_mappings, settings
constexpr Around kWeightsFile = {1200, 170};
constexpr std::int64_t kHeaderPerTensor = 64;  // of safetensors: dtype, shape, offsets

struct Tensors {
  Bytes bytes;
  std::int64_t storages = 0;
  void add(Bytes more) {
    bytes += more;
    ++storages;
  }
  void add(const Tensors& more) {
    bytes += more.bytes;
    storages += more.storages;
  }
};

// `named`: tensors that the pickle names; those without a storage of their own share one.
CheckpointFiles torch_files(std::string path,
                            CheckpointWriter writer,
                            std::int64_t files,
                            const Tensors& tensors,
                            Around around,
                            std::int64_t named) {
  CheckpointFiles entry;
  entry.path = std::move(path);
  entry.written_by = writer;
  entry.files = files;
  entry.tensors = tensors.bytes;
  entry.storages = tensors.storages;
  entry.bytes = tensors.bytes + Bytes::of(around.file + tensors.storages * kBytesPerStorage +
                                          named * around.tensor);
  entry.total = entry.bytes * files;
  return entry;
}

// What a rank's engine holds that a checkpoint has.
struct Held {
  Tensors weights;    // trainable, as the module's state dict leads to them
  Tensors frozen;     // the same of frozen ones
  Tensors optimizer;  // fp32 weights and states, but for those on NVMe
  Tensors fragments;  // of frozen weights, a second time: frozen_param_fragments
  Bytes swapped;      // files of the optimizer's swapper
};

// Stage 3: a rank's parts. Stage 2 has no parts, and copies the whole weights to the host
// (_get_param_fragment_func); stages 0 and 1 write none (_save_checkpoint, save_frozen_param).
void add_frozen(const Plan& plan, const std::vector<EngineBuffer>& buffers, Held& held) {
  for (const EngineBuffer& buffer : buffers) {
    if (buffer.name == BufferName::frozen_ds_tensor) held.fragments.add(buffer.bytes);
  }
  if (plan.engine.stage == 2) held.fragments = held.frozen;
}

Held held_by(const Plan& plan) {
  Held held;
  const std::vector<EngineBuffer> buffers = engine_buffers(plan.engine, plan.engine_parameters);
  for (const EngineBuffer& buffer : buffers) {
    const bool resident = buffer.lifetime == BufferLifetime::resident;
    if (buffer.category == MemoryCategory::optimizer_states) {
      if (buffer.place == BufferPlace::nvme) {
        held.swapped += buffer.bytes;
      } else {
        held.optimizer.add(buffer.bytes);
      }
    } else if (buffer.category == MemoryCategory::parameters && resident && plan.engine.stage < 3) {
      const bool frozen = buffer.name == BufferName::module_parameters && buffer.index >= 0 &&
                          !plan.engine_parameters[static_cast<std::size_t>(buffer.index)].trainable;
      (frozen ? held.frozen : held.weights).add(buffer.bytes);
    }
  }
  add_frozen(plan, buffers, held);
  return held;
}

std::int64_t tensors_of(const Plan& plan, bool exclude_frozen) {
  return std::count_if(
      plan.engine_parameters.begin(),
      plan.engine_parameters.end(),
      [&](const EngineParameter& parameter) { return parameter.trainable || !exclude_frozen; });
}

// "mp_rank_{model rank}": one number for pipeline stage and tensor rank; 00 where there is one.
std::string model_rank(const Plan& plan) {
  return plan.degrees.tensor * plan.degrees.pipeline > 1 ? "{model_rank}" : "00";
}

// ---- native ----

void add_stage3_files(const Plan& plan, const Held& held, bool exclude_frozen, ContentList& list) {
  const bool mics = plan.engine.stage3.mics_shard_size > 0;
  const std::int64_t ranks = partition_ranks(plan.engine);
  const std::string rank = fmt::format("zero_pp_rank_{{rank}}_mp_rank_{}", model_rank(plan));
  const CheckpointWriter writer =
      mics ? CheckpointWriter::first_shard_group : CheckpointWriter::every_rank;
  const std::int64_t files = ranks * plan.degrees.tensor;
  Tensors parts = exclude_frozen ? Tensors{} : held.fragments;
  const std::int64_t named = tensors_of(plan, exclude_frozen);
  // Weights stand in the module's state dict as empty tensors, each with a storage of no bytes.
  parts.storages += named;
  list.add(torch_files(
      "global_step{step}/" + rank + "_model_states.pt", writer, files, parts, kModuleFile, named));
  list.add(torch_files("global_step{step}/" + states_prefix(plan) + rank + "_optim_states.pt",
                       writer,
                       files,
                       held.optimizer,
                       kStatesFile,
                       0));
}

void add_module_file(const Plan& plan, const Held& held, bool exclude_frozen, ContentList& list) {
  Tensors tensors = held.weights;
  if (!exclude_frozen) {
    tensors.add(held.frozen);
    tensors.add(held.fragments);
  }
  if (!partitions_states(plan)) tensors.add(held.optimizer);
  list.add(torch_files(
      fmt::format("global_step{{step}}/mp_rank_{}_model_states.pt", model_rank(plan)),
      plan.degrees.tensor > 1 ? CheckpointWriter::first_replica : CheckpointWriter::rank_0,
      plan.degrees.tensor,
      tensors,
      kModuleFile,
      tensors_of(plan, exclude_frozen)));
}

void add_partitions(const Plan& plan, const Held& held, ContentList& list) {
  if (!partitions_states(plan)) return;
  list.add(torch_files(
      fmt::format("global_step{{step}}/{}zero_pp_rank_{{rank}}_mp_rank_{}_optim_states.pt",
                  states_prefix(plan),
                  model_rank(plan)),
      CheckpointWriter::every_rank,
      plan.degrees.partition() * plan.degrees.tensor,
      held.optimizer,
      kStatesFile,
      tensors_of(plan, true)));
}

// One file of each layer, cloned out of the flat buffer; the module's own file has no weights.
void add_pipeline_stage(const Plan& plan, const Held& held, std::int64_t stage, ContentList& list) {
  Tensors layers;
  for (const EngineParameter& parameter : plan.engine_parameters) {
    layers.add(parameter.numel * plan.engine.model_dtype);
  }
  CheckpointFiles entry =
      torch_files(fmt::format("global_step{{step}}/layer_{{layer}}-model_states.pt "
                              "of stage {}",
                              stage),
                  CheckpointWriter::first_replica,
                  plan.degrees.tensor,
                  layers,
                  kWeightsFile,
                  layers.storages);
  list.add(entry);
  Tensors rest;
  if (!partitions_states(plan)) rest = held.optimizer;
  list.add(torch_files(fmt::format("global_step{{step}}/mp_rank_{:02}_model_states.pt", stage),
                       CheckpointWriter::first_replica,
                       plan.degrees.tensor,
                       rest,
                       kModuleFile,
                       layers.storages));
  add_partitions(plan, held, list);
}

// Stage 3 copies the swapper's folder of each rank, but for its gradients (save_checkpoint).
void add_swapped(const Plan& plan, const Held& held, ContentList& list) {
  if (held.swapped == Bytes::zero()) return;
  if (!plan.engine.acts(ReleaseRule::saves_swapped_states)) return;
  CheckpointFiles entry;
  entry.path = "global_step{step}/offloaded_tensors/rank{rank}/*";
  entry.written_by = CheckpointWriter::every_rank;
  entry.files = plan.degrees.partition() * plan.degrees.tensor;
  entry.tensors = entry.bytes = held.swapped;
  entry.total = held.swapped * entry.files;
  list.add(entry);
}

// ---- the model ----

// A parameter of the file that others read.
Bytes model_bytes(const Plan& plan, std::size_t parameter) {
  const EngineParameter& engine = plan.engine_parameters[parameter];
  return engine.numel * engine.own_dtype.value_or(plan.engine.model_dtype);
}

CheckpointContent save_pretrained(const Plan& plan, bool adapters) {
  Bytes tensors, header;
  std::int64_t named = 0;
  for (std::size_t i = 0; i < plan.engine_parameters.size(); ++i) {
    if (adapters && !plan.engine_parameters[i].trainable) continue;
    tensors += model_bytes(plan, i);
    header += Bytes::of(kHeaderPerTensor +
                        static_cast<std::int64_t>(plan.model->parameters[i].name.size()));
    ++named;
  }
  const Bytes shard = largest_model_shard(plan);
  CheckpointFiles entry;
  entry.files = adapters ? 1 : std::max<std::int64_t>(1, ceil_div(tensors.count(), shard.count()));
  entry.path = adapters          ? "adapter_model.safetensors"
               : entry.files > 1 ? "model-{shard}.safetensors"
                                 : "model.safetensors";
  entry.tensors = Bytes::of(ceil_div(tensors.count(), entry.files));
  entry.storages = ceil_div(named, entry.files);
  entry.bytes = Bytes::of(ceil_div((tensors + header).count(), entry.files));
  entry.total = tensors + header;
  return {{entry}};
}

CheckpointContent save_16bit_model(const Plan& plan, bool exclude_frozen) {
  Tensors tensors;
  if (plan.engine.stage == 3) {
    for (std::size_t i = 0; i < plan.engine_parameters.size(); ++i) {
      if (exclude_frozen && !plan.engine_parameters[i].trainable) continue;
      tensors.add(model_bytes(plan, i));
    }
  } else {
    const Held held = held_by(plan);
    tensors = held.weights;
    if (!exclude_frozen) tensors.add(held.frozen);
  }
  return {{torch_files("pytorch_model.bin",
                       CheckpointWriter::rank_0,
                       1,
                       tensors,
                       kWeightsFile,
                       tensors_of(plan, exclude_frozen))}};
}

}  // namespace

Bytes CheckpointContent::total() const {
  Bytes sum;
  for (const CheckpointFiles& entry : files) sum += entry.total;
  return sum;
}

bool partitions_states(const Plan& plan) {
  return has_zero_wrapper(plan.engine) ||
         optimizer_wrapper(plan.engine) == OptimizerWrapper::bf16_optimizer;
}

Bytes pieces_of(const CheckpointContent& universal) {
  Bytes sum;
  for (const CheckpointFiles& entry : universal.files) {
    if (entry.path.find("{parameter}") != std::string::npos) sum += entry.total;
  }
  return sum;
}

Phrase model_problem(const Plan& plan) {
  const bool adapters = plan.workload.method != Method::full;
  const bool trainers_adapters = adapters && plan.workload.frontend == Frontend::hf_trainer;
  if (plan.engine.stage == 3 && !plan.engine.stage3.gather_16bit_weights_on_save &&
      !trainers_adapters) {
    return "stage3_gather_16bit_weights_on_model_save is false: zero_to_fp32.py makes the weights "
           "out of the native files";
  }
  if (!plan.stages.empty()) return "a pipeline writes a file for each layer, which are the model";
  return "";
}

Phrase universal_problem(const Plan& plan) {
  const EngineConfig& engine = plan.engine;
  const std::string release = to_string(plan.software.deepspeed_release);
  if (!partitions_states(plan)) return "nothing to convert: the states are in one file";
  bool first = false, second = false;
  for (const OptimizerState& state : optimizer_states(engine.optimizer, Elements::of(1 << 20))) {
    first = first || state.suffix == "[exp_avg]";
    second = second || state.suffix == "[exp_avg_sq]";
  }
  if (!first || !second) return "ds_to_universal.py converts Adam's two states and no others";
  if (engine.offload_optimizer.device == OffloadDevice::nvme && engine.stage == 3) {
    return "ds_to_universal.py does not read states that lie on NVMe";
  }
  if (engine.stage == 3 && engine.stage3.mics_shard_size > 0) {
    return "whether ds_to_universal.py converts MiCS's files is not known";
  }
  if (engine.stage == 3) {
    if (engine.acts(ReleaseRule::converts_stage3)) return "";
    return phrase("ds_to_universal.py of DeepSpeed {} converts no stage 3", release);
  }
  if (plan.ds_config.boolean(Knob::elastic_checkpoint).value_or(false)) {
    return "ds_to_universal.py does not read what elastic_checkpoint writes";
  }
  if (engine.acts(ReleaseRule::injects_missing_state)) return "";
  return fmt::format(
      "ds_to_universal.py of DeepSpeed {} reads checkpoints of Megatron-DeepSpeed alone", release);
}

std::string states_prefix(const Plan& plan) {
  return plan.engine.model_dtype == DType::bf16 ? "bf16_" : "";
}

bool excludes_frozen(const Plan& plan, const CheckpointOptions& options) {
  const bool adapters = plan.workload.method != Method::full;
  return options.exclude_frozen.value_or(adapters &&
                                         plan.workload.frontend == Frontend::hf_trainer);
}

Bytes largest_model_shard(const Plan& plan) {
  return plan.software.transformers_act(ReleaseRule::saves_large_shards) ? Bytes::of(50'000'000'000)
                                                                         : Bytes::of(5'000'000'000);
}

CheckpointContent native_checkpoint(const Plan& plan, const CheckpointOptions& options) {
  ZP_CHECK(plan.workload.engine == TrainingEngine::deepspeed, "a checkpoint of DeepSpeed");
  const bool exclude_frozen = excludes_frozen(plan, options);
  ContentList list;
  if (!plan.stages.empty()) {
    for (std::int64_t stage = 0; stage < plan.degrees.pipeline; ++stage) {
      const Plan one = stage_plan(plan, stage);
      add_pipeline_stage(one, held_by(one), stage, list);
    }
    return {list.take()};
  }
  const Held held = held_by(plan);
  if (plan.engine.stage == 3) {
    add_stage3_files(plan, held, exclude_frozen, list);
    add_swapped(plan, held, list);
  } else {
    add_module_file(plan, held, exclude_frozen, list);
    add_partitions(plan, held, list);
  }
  return {list.take()};
}

std::optional<CheckpointContent> model_checkpoint(const Plan& plan,
                                                  const CheckpointOptions& options) {
  if (!model_problem(plan).empty()) return std::nullopt;
  if (plan.workload.frontend == Frontend::hf_trainer) {
    return save_pretrained(plan, plan.workload.method != Method::full);
  }
  return save_16bit_model(plan, excludes_frozen(plan, options));
}

CheckpointContent universal_checkpoint(const Plan& plan, const CheckpointOptions& options) {
  ContentList list;
  for (const char* state : {"fp32", "exp_avg", "exp_avg_sq"}) {
    const DType dtype = state == std::string_view("fp32") ? plan.engine.master_dtype
                                                          : plan.engine.optimizer_state_dtype;
    CheckpointFiles entry;
    entry.path = fmt::format("global_step{{step}}_universal/zero/{{parameter}}/{}.pt", state);
    entry.written_by = CheckpointWriter::converter;
    entry.files = 0;
    for (const Parameter& parameter : plan.whole_model->parameters) {
      if (!parameter.trainable) continue;
      const Tensors one{parameter.numel * dtype, 1};
      ++entry.files;
      entry.storages = 1;
      entry.tensors = std::max(entry.tensors, one.bytes);
      entry.bytes = std::max(entry.bytes, one.bytes + Bytes::of(kUniversalFile));
      entry.total += one.bytes + Bytes::of(kUniversalFile);
    }
    list.add(entry);
  }
  const CheckpointContent native = native_checkpoint(plan, options);
  for (CheckpointFiles entry : native.files) {
    if (entry.path.find("optim_states") != std::string::npos) {
      // Stage 3 keeps the whole of rank 0's file there, weights and states among it.
      if (plan.engine.stage != 3) continue;
      entry.path = "global_step{step}_universal/zero/optimizer_state.pt";
      entry.files = 1;
      entry.total = entry.bytes;
    } else {
      entry.path = "global_step{step}_universal/" + entry.path.substr(entry.path.find('/') + 1);
    }
    entry.written_by = CheckpointWriter::converter;
    list.add(entry);
  }
  return {list.take()};
}

}  // namespace zeroplan
