// What the user said: the scenario document of docs/contract.md section 1, with where each value
// came from.
//
// One table, kScenarioKeys, has a row for every key: its place in the document, its flag, its type
// and range. Reading documents, reading flags and printing iterate it. Nothing is defaulted here;
// resolve() (model/plan/plan.hpp) turns a Scenario into a Plan.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace zeroplan {

enum class ScenarioKey {
  id,
  model,
  cluster,
  profile,
  ds_config,
  sequence_length,
  micro_batch_size,
  gradient_accumulation_steps,
  global_batch_size,
  method,
  precision,
  weights_dtype,
  load_device,
  loading,
  optimizer,
  attention,
  linear_attention,
  activation_checkpointing,
  checkpoint_reentrant,
  activation_offload,
  engine,
  frontend,
  implementation,
  fused_loss,
  tiled_mlp,
  compile,
  use_cache,
  outputs_held,
  outputs_kept,
  gradients_held,
  sync_each_batch,
  expandable_segments,
  optimizer_implementation,
  fsdp_version,
  omp_num_threads,
  pipeline_parallel,
  tensor_parallel,
  sequence_parallel,
  dataset,
  lengths,
  images,
  image_size,
  freeze,
  trainer,
  teacher,
  models,
  evaluation,
  save_steps,
  eval_steps,
  logging_steps,
  dataloader_num_workers,
  mtbf,
  deepspeed_version,
  torch_version,
  transformers_version,
  trl_version,
  accelerate_version,
};

inline constexpr std::size_t kScenarioKeyCount =
    static_cast<std::size_t>(ScenarioKey::accelerate_version) + 1;

enum class ScenarioType {
  text,            // a string
  text_or_object,  // a name, a path, or an inline document
  integer,         // within [min, max]
  tokens,          // the same, also written 4k
  boolean,         //
  choice,          // one of `choices`
  objects,         // an array of objects; by flags: one flag an object (models_of_flag)
};

struct ScenarioKeyInfo {
  ScenarioKey key;
  std::string_view pointer;     // in the document
  std::string_view flag;        // "--sequence-length"
  std::string_view short_flag;  // "--seq", or empty
  ScenarioType type;
  std::string_view choices;  // "bf16|fp16|fp32"
  std::int64_t min;
  std::int64_t max;
  std::string_view help;
};

extern const std::array<ScenarioKeyInfo, kScenarioKeyCount> kScenarioKeys;
const ScenarioKeyInfo& info(ScenarioKey key);

// Where a value was said.
struct Origin {
  std::string file;     // "command line" or a path
  std::string pointer;  // flag or JSON pointer
};

struct ExplicitValue {
  Json value;  // checked against the table's type and range
  Origin origin;
};

class Scenario {
 public:
  // What was said for `key`, or null.
  const ExplicitValue* find(ScenarioKey key) const;
  void set(ScenarioKey key, Json value, Origin origin);
  void unset(ScenarioKey key);

 private:
  std::array<std::optional<ExplicitValue>, kScenarioKeyCount> said_;
};

}  // namespace zeroplan
