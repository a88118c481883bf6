// The folder that `-o DIR` writes: everything that starts the run a plan describes, for every
// launcher that people use. What is fixed stands as files in configs/kit; what depends on the plan
// is a template there (*.in), whose @NAMES@ are filled in here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/phrase.hpp"
#include "foreign/form.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan::tuner {

struct KitFile {
  std::string path;  // relative to the folder
  std::string text;
  bool executable = false;
  Phrase page = {};  // of a page for people: its text, to be said in their language
};

// The user's own file, whose settings no plan has (data, rates, schedule, epochs, where it writes).
struct OwnTraining {
  std::optional<foreign::Form> form;  // whose file it is, where a kit has one of the same tool
  foreign::FormSettings settings;
  // Folders and files of this machine: what the dataset was counted from; empty: nothing was.
  std::string data, tokenizer;
};

// PLAN.md, what starts the run and ds_config.json (of FSDP and DDP accelerate.yaml) lie in the
// folder, everything else in kit/ below it; of a kit without scripts its three documents.
//
// `scenario`: the resolved document (scenario_document), which the kit's scripts read. Plans of the
// embedded engine, and those that no script of ours trains (kit_scope.hpp), get documents and
// PLAN.md alone. Throws InputError where the
// scenario's model is not to be written as a config.
std::vector<KitFile> make_kit(const Plan& plan,
                              const Json& scenario,
                              const StepResult& prediction,
                              const OwnTraining& own = {});

}  // namespace zeroplan::tuner
