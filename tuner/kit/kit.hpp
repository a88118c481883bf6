// The folder that `-o DIR` writes: everything that starts the run a plan describes, for every
// launcher that people use. What is fixed stands as files in configs/kit; what depends on the plan
// is a template there (*.in), whose @NAMES@ are filled in here.
#pragma once

#include <string>
#include <vector>

#include "model/json.hpp"
#include "model/phrase.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"

namespace zeroplan {

struct KitFile {
  std::string path;  // relative to the folder
  std::string text;
  bool executable = false;
  Phrase page = {};  // of a page for people: its text, to be said in their language
};

// `scenario`: the resolved document (scenario_document), which the kit's scripts read. Plans of the
// embedded engine, and those that no script of ours trains (kit_scope.hpp), get documents and
// PLAN.md alone. Throws InputError where the
// scenario's model is not to be written as a config.
std::vector<KitFile> make_kit(const Plan& plan, const Json& scenario, const StepResult& prediction);

}  // namespace zeroplan
