// A simulated run as files that other programs open.
#pragma once

#include <string>

#include "model/plan/plan.hpp"
#include "model/predict/step_result.hpp"
#include "simulator/trace.hpp"

namespace zeroplan::simulator {

struct Recording {
  std::string trace;            // of the timed step, the rank with the most memory first: trace.hpp
  std::string memory_snapshot;  // of that rank's whole run: memory_snapshot.hpp
};

// Plays the plan's ranks again, on the GPU of `result` where it fits on it, else on one without a
// limit. Precondition: is_simulated(plan).
Recording record_run(const Plan& plan, const StepResult& result);

// The timed step as data, of the rank with the most memory.
struct SimulatedStep {
  Program program;  // names of the timeline's streams, tasks and labels
  Timeline timeline;
  Bytes outside;  // of torch: context, NCCL, libraries
};

// Plays the plan again, as record_run does. Precondition: is_simulated(plan).
SimulatedStep simulate_step(const Plan& plan, const StepResult& result);

}  // namespace zeroplan::simulator
