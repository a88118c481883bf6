// THE table of other tools' settings, configs/foreign.json: a row is one meaning, with the names
// that tools have for it. Reading (meaning.hpp) and writing (form_settings.hpp) go by the rows;
// what none can say is code under the name of a rule.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "foreign/settings.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::foreign {

// Who reads a setting that becomes more than one value of the scenario, or depends on others.
enum class Rule {
  none,  // the row says all of it
  path,
  accumulation,
  half,
  dtype,
  pure_bf16,
  optimizer,
  checkpointing,
  activation_offloading,
  section,  // whose members are settings
  ds_config,
  fsdp,
  fsdp_section,
  ddp,
  device_map,
  quant_method,
  vision,
  image_pixels,
  trainer,  // a trainer of TRL's
  // The training loop's, which are understood together (loop_words.hpp).
  save_strategy,
  save_steps,
  saves_per_epoch,
  eval_strategy,
  eval_steps,
  evals_per_epoch,
  do_eval,
  held_out,  // samples kept for evaluation: a number or a share, or files of them
  eval_batch,
  eval_accumulation,
  logging_strategy,
  logging_steps,
};

// What a value is read as: itself, true or false, a whole number, any number, one of 0 to 1, one
// above 0, names of modules in a list, the same between commas.
enum class ValueType { any, flag, count, number, share, positive, names, joined };

struct SettingRow {
  std::string_view names;    // "cutoff_len|max_length"; of a section's member "section.member"
  std::string_view under;    // "actor_rollout_ref.model.": stands before each of the names
  std::optional<Tool> tool;  // it means that with this one alone
  std::string_view is;       // "sequence_length", "method.rank"; empty: nothing of the scenario
  std::optional<ScenarioKey> key;  // of the scenario, where `is` begins with one
  std::string_view part;           // of the key's object: "rank"
  Rule rule = Rule::none;
  ValueType type = ValueType::any;
  // Our value -> theirs, or a list of which the first is written; of "" it says nothing, and "*" is
  // every other value.
  const Json* words = nullptr;
  bool weak = false;         // another row that says the same counts over it
  std::string_view of;       // the trainers that have it, with '|' between them; empty: all
  std::string_view refused;  // what it asks for, which is not planned
  // How it is written: always so; so where no plan says it, which the run needs and the user's own
  // file may replace; where a part of the plan is on, and what otherwise.
  const Json* always = nullptr;
  const Json* own = nullptr;
  std::string_view when;
  const Json* otherwise = nullptr;
  std::string_view comment;
  const Json* usual = nullptr;  // theirs where nobody says it
};

// What a tool takes where nobody says it.
struct DefaultRow {
  std::string_view tools;
  ScenarioKey key;
  const Json* value;
  std::string_view says;  // the sentence
};

std::span<const SettingRow> setting_rows();
std::span<const DefaultRow> default_rows();
// Null for a name that no tool is known to have; a tool's own row counts over the others'.
const SettingRow* find_row(std::string_view name, Tool tool);
// The names that a tool's file is written with, in their order; '?' behind those that stand there
// where the value is on.
std::vector<std::string_view> written_names(std::string_view form);
// Whether a name is a known one that memory and time of a step do not depend on.
bool is_unused(std::string_view name);

// What a value says of the row's key or part; nothing where it says none.
std::optional<Json> read_value(const SettingRow& row, const Json& theirs);
// The other way: what stands in the file; nothing where no word is known. `ours` null: the plan has
// no such part.
std::optional<Json> written_value(const SettingRow& row, const Json* ours);

}  // namespace zeroplan::foreign
