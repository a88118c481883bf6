// What remedies are tried on: a question whose strategy is free, or a plan as it stands.
#pragma once

#include <optional>

#include "tuner/fit_answer.hpp"
#include "tuner/variations.hpp"

namespace zeroplan::tuner {

// What remedies are tried on.
class RemedySubject {
 public:
  virtual ~RemedySubject() = default;

  // As it is, and what became of it: it does not fit.
  virtual const Scenario& scenario() const = 0;
  virtual const Plan& plan() const = 0;
  virtual const StepResult& result() const = 0;
  // Of what there is too little.
  virtual bool lacks(Resource resource) const;
  // Whether the stage, offload and checkpointing are looked for anyway.
  virtual bool chooses_strategy() const = 0;
  // By the analytic estimate the best of the changed run; absent where it is refused.
  virtual std::optional<StrategyResult> roughly(const Variation& change) const = 0;
  // The same, simulated: the best that fits; else the nearest, or what the estimate sees to be far
  // from fitting.
  virtual std::optional<StrategyResult> best(const Variation& change) const = 0;
  // Whether the changed run fits with the strategy of `like`, simulated.
  virtual bool fits(const Variation& change, const StrategyResult& like) const = 0;
};

}  // namespace zeroplan::tuner
