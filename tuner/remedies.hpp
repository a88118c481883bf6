// What makes a run fit that does not: the one place that answers `fit`, `tune`, `simulate`,
// `explain`, `report` and `rehearse`.
//
// A catalogue of changes (remedy_catalogue.hpp) is tried on a subject: a question whose strategy is
// free, or a plan as it stands. Whatever is told as fitting was simulated and fits. In the order of
// what they cost: nothing, speed, another training, host memory, machines; of one price the change
// of the largest part of the memory first. What has a size (micro-batch, length, nodes) is
// bisected: the largest that fits, as the simulator sees it. Where no single change does, they are
// added up in the same order, and those of the sum that are not needed are left out again. Checked
// by tests/unit/tuner/remedies_test.cpp and tests/property/fit_property.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tuner/fit_answer.hpp"
#include "tuner/remedy_subject.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {

struct TriedRemedy {
  Phrase change;
  RemedyPrice price = RemedyPrice::nothing;
  Variation variation;
  std::optional<StrategyResult> outcome;  // absent: refused

  bool fits() const { return outcome && outcome->simulated && outcome->result.fits; }
};

struct Remedies {
  std::vector<TriedRemedy> tried;     // in the order of their prices, sums last
  std::vector<std::size_t> that_fit;  // indices of `tried`, the cheapest first
};

// Stops behind the price at which so many fit.
Remedies find_remedies(const RemedySubject& subject, std::size_t enough = 3);

// The same for a plan as it stands. `result`: its own. `resource`: what ran out; nothing: what
// `result` says.
Remedies find_remedies(const Variations& variations,
                       const StepResult& result,
                       const PredictOptions& options,
                       std::optional<Resource> resource = std::nullopt);

// Writes the first of `fit` into each limit of `result` that names no change.
void say_cheapest_change(const std::vector<Remedy>& fit, StepResult& result);

// The same with what find_remedies() finds for a plan that does not fit. `scenario`: the plan's.
void add_cheapest_change(const Scenario& scenario, StepResult& result);

// Remedies that are told: the first so many that fit.
inline constexpr std::size_t kToldRemedies = 4;
std::vector<Remedy> fitting(Remedies remedies);

}  // namespace zeroplan::tuner
