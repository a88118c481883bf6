// The answer of `zeroplan fit`: does it fit, how, and what to change when it does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/predict/predict.hpp"
#include "tuner/headroom.hpp"
#include "tuner/strategies.hpp"

namespace zeroplan {

// One strategy, planned and predicted.
struct StrategyResult {
  Strategy strategy;
  Plan plan;
  StepResult result;
};

// A change of the scenario that was planned again.
struct Remedy {
  std::string change;   // "use 4 nodes instead of 2"
  StrategyResult best;  // the strategy that fits then
};

struct FitAnswer {
  std::vector<StrategyResult> strategies;  // in the order of strategies()
  std::optional<std::size_t> recommended;  // index; nothing where none fits
  std::vector<std::size_t> runners_up;     // the next two that fit and differ in their numbers
  std::optional<Headroom> headroom;        // of the recommended one
  std::vector<Remedy> remedies;            // cheapest first, at most three, where none fits
};

// Plans every strategy. Throws InputError as resolve() does.
FitAnswer fit(const Scenario& scenario, const PredictOptions& options = {});

}  // namespace zeroplan
