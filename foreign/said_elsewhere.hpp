// What was read of a training that was set up elsewhere: a scenario, and the line that each of its
// values came from. Those who read settings (taken.hpp, adapters.hpp, sharding.hpp, loop_words.hpp)
// write into it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/phrase.hpp"
#include "foreign/settings.hpp"
#include "model/plan/scenario.hpp"

namespace zeroplan::foreign {

// One line for the user: where it stands, what stands there, what it was taken for.
struct ReadLine {
  std::string file;
  int line = 0;
  Phrase said;   // "per_device_train_batch_size: 4"
  Phrase taken;  // "--micro-batch-size 4"
};

// What settings say of the parts of one key's object: the rank of `method`.
struct SaidParts {
  Json object = Json::object();
  std::optional<Setting> last;  // that said one
};

struct Meaning {
  // A tool's default stands in where nobody says the key; without a sentence it is not printed.
  void assume(ScenarioKey key, Json value, const Phrase& sentence);

  Scenario scenario;
  std::optional<bool> freezes_tower, freezes_projector;  // of a model that is given images
  // Every setting stands in exactly one of these four lists.
  std::vector<ReadLine> read;
  std::vector<ReadLine> passed_over;  // said before, otherwise; `taken`: what counts
  std::vector<ReadLine> unused;       // memory and the time of a step do not depend on it
  std::vector<ReadLine> unknown;      // names that nobody here knows; `taken` is empty
  std::vector<Phrase> assumed;        // the tool's own defaults
  Processes processes;
  Setting training;  // the first setting of the tool that trains; no name: none was read
  Tool tool = Tool::accelerate;  // that tool
  // Settings of the tool that trains, those that are unused or not known; of OpenRLHF and verl all.
  std::vector<Setting> kept;
  std::optional<Setting> hybrid;  // FSDP within nodes, until it is known how many GPUs these have
  // What the flags beside --from say: of a value that the file leaves to a variable they are asked.
  std::map<ScenarioKey, std::string> flags;
  bool says_ddp = false;  // accelerate's MULTI_GPU
  bool native = false;    // a loop of DeepSpeed's own
};

}  // namespace zeroplan::foreign
