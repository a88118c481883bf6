// What the settings of other tools mean here: a scenario, with the line that each value came from.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/from/settings.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::from {

// One line for the user: where it stands, what stands there, what it was taken for.
struct ReadLine {
  std::string file;
  int line = 0;
  std::string said;   // "per_device_train_batch_size: 4"
  std::string taken;  // "--micro-batch-size 4"
};

struct Meaning {
  Scenario scenario;
  std::vector<ReadLine> read;
  std::vector<ReadLine> unknown;     // names that nobody here knows; `taken` is empty
  std::vector<std::string> assumed;  // the tool's own defaults
  Processes processes;
  Setting training;  // the first setting of the tool that trains; no name: none was read
  Tool tool = Tool::accelerate;  // that tool
  std::vector<Setting> kept;  // of documents: what changes neither memory nor time, or is not known
  std::optional<Setting> hybrid;  // FSDP within nodes, until it is known how many GPUs these have
  // What the flags beside --from say: of a value that the file leaves to a variable they are asked.
  std::map<ScenarioKey, std::string> flags;
  bool says_ddp = false;  // accelerate's MULTI_GPU
  bool native = false;    // a loop of DeepSpeed's own
};

// Adds what a part says to `meaning`; what was there before counts where both say it. Throws
// InputError for what changes memory or time and is not planned (QLoRA's paged optimizers,
// Unsloth, preference training with a second model), by that name.
void add_meaning(const Part& part, Meaning& meaning);

// The defaults of the tool that trains, for what no part said. Behind the last part.
void add_defaults(Meaning& meaning);

// Whether it trains by the Trainer with neither DeepSpeed nor FSDP: then DDP runs.
bool runs_ddp(const Meaning& meaning);

// The cluster's text, "2x8xa100"; empty where the number or the kind of the GPUs is not said.
std::string cluster_of(const Processes& processes);

}  // namespace zeroplan::from
