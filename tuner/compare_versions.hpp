// What releases of DeepSpeed, torch and transformers do to one training run: the same question
// under several sets of them, and which differences between neighbouring sets move the answer.
//
// A difference is a row of the table of releases (model/releases.hpp) or a default of ds_config
// that the releases do not share. Each is tried alone: the newer set is simulated again with this
// one thing as the older set has it. What that changes is the difference's effect; effects of
// several need not add up to the whole change, because they act on each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/knobs/ds_config.hpp"
#include "model/plan/plan.hpp"
#include "model/plan/software_sets.hpp"
#include "model/predict/predict.hpp"
#include "model/releases.hpp"
#include "tuner/deadline.hpp"

namespace zeroplan::tuner {

struct ReleaseSet {
  Version deepspeed;
  Version torch;
  Version transformers;
};

// "0.16.4 / 2.6.0 / 4.50.3"; without DeepSpeed for an engine that runs without it.
std::string label(const ReleaseSet& set, bool with_deepspeed = true);

// A package's release in a set; {} of those that are no part of one: what nobody says follows
// transformers.
Version release_of(const ReleaseSet& set, Package package);

// The scenario under a set's releases, in place of what it says of them.
Scenario under(const Scenario& scenario, const ReleaseSet& set);

// The sets of configs/software.json that people have or had, oldest first.
std::vector<ReleaseSet> usual_release_sets();

// A default of ds_config that the two releases of DeepSpeed do not share.
struct ChangedDefault {
  Knob knob = Knob::zero_stage;
  std::string older;
  std::string newer;
};

// The code of a class that was recorded: in which transformers, of the older set and of the newer.
struct ChangedClass {
  Version older;
  Version newer;
};

// One difference between a set and the one before it, with what it does to the run alone: the newer
// set's result minus the result without the difference. GPU memory is of the rank that needs most.
struct ReleaseEffect {
  std::optional<ReleaseRule> rule;  // else `changed`, else `recorded`
  std::optional<ChangedDefault> changed;
  std::optional<ChangedClass> recorded;
  bool begins = true;  // of a rule: the newer set does it, the older one does not
  Bytes gpu_memory;    // may be negative, as the others
  Bytes host_memory;   // of a node
  Seconds step_time;
};

struct ComparedSet {
  ReleaseSet releases;
  Plan plan;
  StepResult result;
  std::size_t differences = 0;  // from the set before: rules, defaults and a class that differ
  std::vector<ReleaseEffect> effects;  // of those that move the run, the largest first
};

struct ComparedVersions {
  std::vector<ComparedSet> sets;  // at least one
  Phrase missing;  // a sentence on sets and differences that are left out; empty where none is
};

// One entry for each set, in their order; none for a set that refuses the run, or that a defect
// ends. Throws what ended it where no set is left. `prepared` holds the parts that are the same for
// all; its ds_config, where it has one, stands for the scenario's.
ComparedVersions compare_versions(const Scenario& scenario,
                                  const Prepared& prepared,
                                  const std::vector<ReleaseSet>& sets,
                                  const PredictOptions& options,
                                  const ShareDone& on_progress = {});

}  // namespace zeroplan::tuner
