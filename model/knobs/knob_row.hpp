// KnobRow is one row of the knob table. The table itself is configs/knobs.json, where a row is an
// object with the fields of KnobRow; what has its default is left out.
//
// A knob is one key of ds_config.json. Values are numbers without a type of their own here, because
// a row only describes them; its `unit` says what they count (reduce_bucket_size counts elements,
// not bytes).
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "model/software.hpp"

namespace zeroplan {

enum class KnobType { boolean, integer, real, text, list, object };
enum class KnobUnit { none, elements, bytes, samples, micro_batches, steps, ranks, seconds, ratio };

// Who gives a value where the user wrote "auto".
enum class AutoRule {
  unresolved,                   // nobody: the text "auto" reaches DeepSpeed
  dropped,                      // DeepSpeed removes it and its own default counts
  accelerate_default,           // accelerate's plugin: no offload, no path, no gathered save
  micro_batch_size,             // the Trainer's per_device_train_batch_size
  gradient_accumulation_steps,  // the Trainer's gradient_accumulation_steps
  train_batch_size,             // micro-batch * accumulation * data-parallel ranks
  max_grad_norm,                // the Trainer's max_grad_norm (1.0)
  learning_rate,                // the Trainer's learning_rate (5e-5)
  adam_betas,                   // the Trainer's adam_beta1 and adam_beta2 (0.9, 0.999)
  adam_epsilon,                 // the Trainer's adam_epsilon (1e-8)
  weight_decay,                 // the Trainer's weight_decay (0)
  zero,                         // 0
  warmup_steps,                 // from the Trainer's warmup_steps or warmup_ratio
  total_steps,                  // the number of optimizer steps of the job
  fp16_flag,                    // the Trainer's --fp16
  bf16_flag,                    // the Trainer's --bf16
  apex_flag,                    // --fp16 with --fp16_backend apex
  apex_level,                   // the Trainer's --fp16_opt_level
  hidden_squared,               // h * h, h the model's hidden size
  hidden_squared_0_9,           // 0.9 * h * h, rounded down; only with stage 3, else dropped
  hidden_times_10,              // 10 * h; only with stage 3, else dropped
  pipeline_degree,              // the number of pipeline stages of the run
};

// The value of a row: a default, a point of the tuner's grid.
struct KnobLiteral {
  enum class Kind { none, boolean, integer, real, text, json };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // 0 or 1 for a boolean
  double real = 0.0;
  std::string_view text;  // also the JSON text of a list or an object

  constexpr bool is_none() const { return kind == Kind::none; }
};

// A default that held up to and including `until`; where it changed within the series behind that,
// up to the release `before`.
struct OlderDefault {
  DeepSpeedVersion until = DeepSpeedVersion::v0_12;
  KnobLiteral value;
  Version before{};  // 0.0.0: the series behind `until` has another default from the start
};

enum class AliasKind {
  alternative,  // DeepSpeed reads this name too
  deprecated,   // an older name; DeepSpeed warns or no longer reads it
  cpu_flag,     // a boolean: true means the device "cpu"
  pinned_flag,  // a boolean that pins the host memory of every section that is offloaded
};

struct KnobAlias {
  std::string_view pointer;
  AliasKind kind = AliasKind::alternative;
};

// Stages of ZeRO where a knob does something, as bits 0..3.
struct StageSet {
  std::uint8_t bits = 0;
  constexpr bool contains(int stage) const { return (bits >> stage & 1) != 0; }
};
inline constexpr StageSet kEveryStage{0b1111};

// Which part of a step a knob decides: a search takes the knobs of one part together.
enum class KnobRole {
  step,    // the optimizer's step and host memory
  gather,  // which weights stage 3 gathers and when
  reduce,  // how gradients are put together and reduced
  other,   // several of these, or anything
};

// What a knob changes.
struct Effects {
  bool gpu_memory = false;
  bool host_memory = false;
  bool time = false;
  constexpr bool any() const { return gpu_memory || host_memory || time; }
};

// Counts that are multiplied with each other are bounded where they are read, far above what
// anybody runs: their products fit 64 bits. Sizes in elements and bytes are not (base/units.hpp
// checks their products).
struct KnobRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

enum class Knob : std::uint16_t;

struct KnobRow {
  Knob id;
  std::string_view pointer{};  // in ds_config.json
  KnobType type = KnobType::boolean;
  KnobUnit unit = KnobUnit::none;
  KnobLiteral default_value{};        // of the newest version; none: derived or absent
  KnobLiteral stage3_default{};       // none: as default_value
  std::vector<OlderDefault> older{};  // oldest first
  DeepSpeedVersion since = DeepSpeedVersion::v0_12;  // the first described version that reads it
  Version added{};                                   // 0.0.0: with `since`; else the exact release
  Version removed{};                                 // the first that refuses it; 0.0.0: none
  AutoRule automatic = AutoRule::unresolved;
  bool trainer_owned = false;  // "auto" in a file written for the Hugging Face Trainer
  KnobRange range{};
  std::vector<std::string_view> allowed{};  // of a text: the only values there are
  std::vector<KnobAlias> aliases{};
  StageSet stages = kEveryStage;
  Effects affects{};
  bool modelled = false;            // false: accepted, reported, without influence on predictions
  std::vector<KnobLiteral> grid{};  // values that the tuner tries
  // The same where only a search tries them; what is said of single knobs leaves them alone.
  std::vector<KnobLiteral> searched_grid{};
  KnobRole role = KnobRole::other;
  std::string_view description{};
  std::string_view source{};  // file under deepspeed/ and symbol
};

}  // namespace zeroplan
