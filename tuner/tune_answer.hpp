// What `zeroplan tune` is asked for and what it answers (tune.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.hpp"
#include "base/phrase.hpp"
#include "tuner/fit_answer.hpp"
#include "tuner/headroom.hpp"
#include "tuner/packages.hpp"
#include "tuner/search_request.hpp"
#include "tuner/search_result.hpp"

namespace zeroplan::tuner {

enum class Objective {
  throughput,  // most tokens a second and GPU
  memory,      // least GPU memory
  gpus,        // fewest GPUs of the kind that fit; then the fastest on them
  cost,        // fewest GPU-hours a token, over the numbers of nodes up to the cluster's
};
inline constexpr EnumNames<Objective, 4> kObjectiveNames{{"throughput", "memory", "gpus", "cost"}};

struct TuneOptions {
  SearchWords words;
  Objective objective = Objective::throughput;
  // Its goal is set by the objective. Of its seconds, where there is a limit, searches get three
  // quarters, what stands beside the answer gets what they leave.
  SearchOptions search;
};

// A key of the best configuration, and what its other values would do.
struct KnobImpact {
  std::string key;
  std::string value;               // in the best configuration
  std::string other;               // the value that changes the speed most
  double speed_change = 0.0;       // with it: -0.1 for 10 % slower; nothing fits: -1
  std::vector<std::string> unfit;  // values with which it does not fit
};

// What to give up, in this order: the least speed, limits of host and GPU memory, fixed and
// restricted keys.
struct Relaxation {
  Phrase change;
  StepResult result;
  Plan plan;
};

// What stands beside the answer.
enum class Reason { impacts, headroom, fewest_gpus, nearest };
inline constexpr EnumNames<Reason, 4> kReasonNames{
    {"impacts", "headroom", "fewest_gpus", "nearest"}};

// A point of the front of speed, GPU and host memory.
struct FrontPoint {
  Plan plan;
  Evaluated seen;
  Json chosen;  // as SearchSpace::describe() has it
};

struct FasterWith {
  Packages packages;
  double tokens_per_second = 0.0;  // per GPU
};

struct TuneAnswer {
  Scenario scenario;
  SearchResult search;
  std::optional<Plan> plan;  // of the best point, with its result
  StepResult result;
  // Of what was simulated the fastest (the smallest, where memory is the objective), where that is
  // not the plan, which is the simplest within the gap.
  std::optional<FrontPoint> top;
  std::vector<FrontPoint> pareto;
  std::vector<KnobImpact> impacts;  // the strongest first, at most three
  std::optional<Headroom> headroom;
  std::optional<std::int64_t> fewest_gpus;  // of this kind, with which something of the space fits
  Packages needs;                           // taken for granted, because nothing fits without
  // The same configuration with packages, where that is clearly faster.
  std::optional<FasterWith> faster_with;
  std::optional<Relaxation> nearest;  // where nothing fits
  std::vector<Remedy> remedies;       // of the scenario itself, where no relaxation does
  std::vector<Reason> cut_off;        // what the time limit or Ctrl-C left no time for
  bool interrupted = false;           // in the search, or beside it
};

}  // namespace zeroplan::tuner
