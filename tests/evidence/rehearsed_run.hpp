// The simulation of what a line of measurements describes: the memory of the rank that was
// measured.
#pragma once

#include "evidence/measurement.hpp"
#include "model/plan/plan.hpp"
#include "simulator/simulate.hpp"

namespace zeroplan {

inline StepResult simulate_measured(const Measurement& run) {
  SimulateOptions options;
  options.rank = run.rank;
  return simulate(resolve(run.scenario), options);
}

}  // namespace zeroplan
