// What a user of the library asks, as the layers take it.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "library/inside.hpp"
#include "model/lint/lint.hpp"
#include "model/plan/scenario.hpp"
#include "simulator/simulate.hpp"
#include "tuner/tune.hpp"

namespace zeroplan::library {

// What was asked, and what was read of a training that is set up elsewhere.
struct Asked {
  Scenario scenario;
  std::vector<std::string> read;
};

// All throw zeroplan::InputError (of base/diagnostic.hpp) for values that cannot be used.
// `searches`: the question is which strategy; else the one that is set up is asked for, which is
// DDP where a file of another tool starts neither DeepSpeed nor FSDP.
Asked asked_of(const v1::Scenario& said, bool searches);
inline Scenario scenario_of(const v1::Scenario& said, bool searches) {
  return asked_of(said, searches).scenario;
}
PredictOptions options_of(const v1::FitOptions& said);
simulator::SimulateOptions options_of(const v1::SimulateOptions& said);
tuner::TuneOptions options_of(const v1::TuneOptions& said, const Scenario& scenario);
// `scenario` has the ds_config.
LintRequest request_of(const v1::LintOptions& said, const Scenario& scenario);

// Problems of flags as those of the fields and options that have their place here.
v1::InputError as_asked(const InputError& error);

}  // namespace zeroplan::library
