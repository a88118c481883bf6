// Rows of tests/reference/activations.json, recorded from PyTorch by record_activations.py, and the
// same numbers from our graph.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.hpp"
#include "base/json.hpp"
#include "model/families/hf_config.hpp"
#include "model/implementations/implementations.hpp"
#include "model/implementations/lora.hpp"
#include "model/software.hpp"
#include "model/workload.hpp"

namespace zeroplan::testing {

// Definitions: tests/reference/activation_recorder.py.
struct ActivationNumbers {
  Bytes saved, after_forward, forward_peak, peak;
  std::set<std::string> cuda_only;  // operations with memory of their own that ATen does not show
};

struct ActivationRow {
  std::string id;
  Model model;
  GraphOptions options;
  bool on_gpu = false;  // recorded with the kernels' own memory
  ActivationNumbers recorded;
};

inline std::string text_or(const Json& row, std::string_view key, std::string_view otherwise) {
  const Json* value = row.find(key);
  return value == nullptr ? std::string(otherwise) : value->as_string();
}

inline Version series(const std::string& text) {
  const Version version = parse_version(text).value();
  return {version.major, version.minor};
}

inline GraphOptions options_of(const Json& row, const Json& recording) {
  GraphOptions options;
  options.micro_batch = row.find("batch")->as_integer();
  options.sequence_length = row.find("sequence")->as_integer();
  options.transformers = series(recording.find("transformers")->as_string());
  options.torch = series(recording.find("torch")->as_string());
  options.dtype = text_or(row, "dtype", "bf16") == "fp32" ? DType::fp32 : DType::bf16;
  options.attention =
      row.find("attention")->as_string() == "eager" ? Attention::eager : Attention::sdpa;
  const std::string checkpointing = row.find("checkpointing")->as_string();
  if (checkpointing != "none") options.checkpointing = ActivationCheckpointing::full;
  options.checkpoint_reentrant = checkpointing == "reentrant";
  if (row.find("use_cache") != nullptr) options.use_cache = row.find("use_cache")->as_boolean();
  options.outputs_held_in_backward = text_or(row, "outputs", "dropped") == "held";
  if (text_or(row, "mask", "none") == "padded") options.mask = MaskKind::padded;
  if (const Json* lora = row.find("lora")) {
    LoraOptions settings;
    settings.rank = lora->find("rank")->as_integer();
    for (const Json& target : lora->find("targets")->items()) {
      settings.targets.push_back(target.as_string());
    }
    options.lora = settings;
  }
  return options;
}

inline void freeze_all_but(Model& model, const Json& trained) {
  for (Parameter& parameter : model.parameters) {
    parameter.trainable =
        std::any_of(trained.items().begin(), trained.items().end(), [&](const Json& ending) {
          const std::string& text = ending.as_string();
          return parameter.name.size() >= text.size() &&
                 parameter.name.compare(parameter.name.size() - text.size(), text.size(), text) ==
                     0;
        });
  }
}

inline std::vector<ActivationRow> recorded_activations() {
  const std::string path = ZEROPLAN_SOURCE_DIR "/tests/reference/activations.json";
  const Json root = read_json_file(path).root;
  const auto use_of = [](const GraphOptions& options) {
    const bool flash = options.attention == Attention::flash;
    return ModelUse{
        .attention = flash ? "flash_attention_2"
                           : std::string(zeroplan::name(kAttentionNames, options.attention)),
        .sequence_length = options.sequence_length,
        .transformers = options.transformers};
  };
  std::vector<ActivationRow> rows;
  for (const Json& recording : root.find("recordings")->items()) {
    for (const Json& json : recording.find("rows")->items()) {
      ActivationRow row;
      row.id = recording.find("transformers")->as_string() + " " + json.find("id")->as_string();
      row.on_gpu = recording.find("device")->as_string() == "cuda";
      row.options = options_of(json, recording);
      const Json& config = *root.find("models")->find(json.find("model")->as_string());
      // The recording of a class may be of another release than the row, or of none of its
      // positions.
      if (!is_planned(config, use_of(row.options))) continue;
      row.model = read_model(config, path, "", use_of(row.options));
      if (row.options.transformers < series(to_string(row.model.releases.recorded))) continue;
      if (row.options.lora) row.model = with_lora(row.model, *row.options.lora);
      if (const Json* trained = json.find("trained")) freeze_all_but(row.model, *trained);
      const auto bytes = [&](const char* key) { return Bytes::of(json.find(key)->as_integer()); };
      row.recorded.saved = bytes("saved_bytes");
      row.recorded.after_forward = bytes("after_forward_bytes");
      row.recorded.forward_peak = bytes("forward_peak_bytes");
      row.recorded.peak = bytes("peak_bytes");
      for (const Json& rule : json.find("cuda_only")->items()) {
        row.recorded.cuda_only.insert(rule.as_string());
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Plays a micro-batch as the recorder saw it: without what kernels allocate inside (category
// temporaries) unless the row comes from a GPU.
class ActivationCount {
 public:
  ActivationCount(const ModelGraph& graph, bool reentrant, bool kernel_memory)
      : graph_(graph), reentrant_(reentrant), kernel_memory_(kernel_memory) {
    play_micro_batch(graph, *this);
    end_forward();
    count_saved();
  }
  const ActivationNumbers& numbers() const { return numbers_; }

  void begin(const PassStep& step) {
    if (step.pass == Pass::backward || step.pass == Pass::recompute) end_forward();
  }
  void module_enter(const PassStep&, int) {}
  void module_exit(const PassStep&, int) {}
  void operation(const PassStep&, const Operation& operation) {
    if (kernel_memory_waits_) numbers_.cuda_only.insert(std::string(operation.name));
    kernel_memory_waits_ = false;
  }
  void allocate(StorageId id, const Storage& storage) {
    if (storage.category == MemoryCategory::temporaries) {
      kernel_memory_waits_ = true;
      if (!kernel_memory_) return;
    }
    ZP_CHECK(alive_storages_.emplace(id).second, "allocated twice");
    alive_ += allocated_bytes(storage);
    numbers_.peak = std::max(numbers_.peak, alive_);
  }
  void release(StorageId id, const Storage& storage) {
    if (alive_storages_.erase(id) == 1) alive_ -= allocated_bytes(storage);
  }
  void weight_gradient(const PassStep& step, const WeightGradient& gradient) {
    const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(step.instance)];
    const int parameter = instance.parameters[static_cast<std::size_t>(gradient.parameter)];
    if (gradient.storage >= 0) pending_[parameter] = {step.instance, gradient.storage};
    if (!gradient.complete) return;
    const StorageId id = pending_.at(parameter);
    pending_.erase(parameter);
    release(id, graph_.storage(id));
  }

 private:
  void end_forward() {
    if (forward_ended_) return;
    forward_ended_ = true;
    numbers_.forward_peak = numbers_.peak;
    numbers_.after_forward = alive_;
  }
  // Each storage once, whoever saves it. A reentrant checkpoint saves its arguments; of another one
  // the hooks see nothing.
  void count_saved() {
    std::set<StorageId> saved;
    for (std::size_t i = 0; i < graph_.instances.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      const Block& block = graph_.block_of(graph_.instances[i]);
      for (const Event& event : block.of(Pass::forward)) {
        if (event.kind == EventKind::save) saved.insert(resolve(graph_, at, event.index));
      }
      if (!graph_.instances[i].checkpointed || !reentrant_) continue;
      if (block.input >= 0) saved.insert(resolve(graph_, at, block.input));
      for (const SharedUse& use : block.shared) saved.insert(resolve(graph_, at, use.storage));
    }
    for (const StorageId id : saved) numbers_.saved += graph_.storage(id).bytes;
  }

  const ModelGraph& graph_;
  bool reentrant_, kernel_memory_;
  bool forward_ended_ = false;
  bool kernel_memory_waits_ = false;
  Bytes alive_;
  std::set<StorageId> alive_storages_;
  std::map<int, StorageId> pending_;
  ActivationNumbers numbers_;
};

inline ActivationNumbers predicted_activations(const ActivationRow& row) {
  const ModelGraph graph = build_graph(row.model, row.options);
  return ActivationCount(graph, row.options.checkpoint_reentrant, row.on_gpu).numbers();
}

}  // namespace zeroplan::testing
