// What the settings of other tools are called and what their values say.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "foreign/settings.hpp"

namespace zeroplan::foreign {

// What a setting becomes.
enum class Role {
  model,
  sequence,
  micro_batch,
  accumulation,
  bf16,
  fp16,
  mixed_precision,
  optimizer,
  attention,
  flash,
  sdpa,
  eager,
  checkpointing,
  no_checkpointing,
  checkpointing_arguments,
  activation_offloading,  // a switch, or where to
  loading,                // whether ranks load less than the whole model
  accelerator_arguments,
  reentrant,
  ds_config,
  fsdp,
  fsdp_arguments,
  fused_loss,
  adapter,      // full, lora, qlora
  use_adapter,  // a switch
  rank,
  dropout,
  targets,
  all_targets,
  four_bits,
  bits,
  four_bit_code,
  double_quant,
  bnb_arguments,  // of transformers' BitsAndBytesConfig
  fsdp_version,
  tiled_mlp,
  ddp,
  dtype,
  pure_bf16,  // LLaMA-Factory's: no fp32 anywhere
  device_map,
  compile,
  save_strategy,  // "steps", "epoch", "no"
  save_steps,
  eval_strategy,
  eval_steps,
  saves_per_epoch,
  evals_per_epoch,
  do_eval,
  held_out,  // samples kept for evaluation: a number or a share, or files of them
  eval_batch,
  eval_accumulation,
  logging_strategy,
  logging_steps,
  dataloader_workers,
  padding,       // "max_length", or a switch
  packing,       // a switch
  epochs,        // of the data
  vision,        // whether the tower beside a language model is frozen
  image_pixels,  // of an image at most
  quant_method,  // "bnb"
};

// Nothing for a name that no tool is known to have; some names are one tool's alone.
std::optional<Role> role_of(std::string_view name, Tool tool);

// true, yes, 1, on, and what tools take for it (auto, full).
bool is_on(const Json& value);
// false, no, none, 0, off.
bool is_switched_off(const Json& value);
bool says_nothing(const Json& value);

// Names of modules: a list, "q_proj,v_proj", "q_proj v_proj".
std::vector<std::string> names_in(const Json& value);

// eager, sdpa, flash, or a name as it is; empty: the class's own.
std::string attention_of(const std::string& name);

}  // namespace zeroplan::foreign
