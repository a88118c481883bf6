// Drives a FetchCoordinator through micro-steps and optimizer steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/engine/fetch_coordinator.hpp"
#include "tests/engine/module_calls.hpp"

namespace zeroplan {

// The log of one optimizer step and where its parts begin.
struct FetchStep {
  FetchLog log;
  std::vector<std::int32_t> micro_steps;  // first event of each
  std::int32_t optimizer = 0;             // first event after the last backward

  std::span<const FetchEvent> micro_step(std::size_t index) const;
  std::span<const FetchEvent> optimizer_step() const;
  void clear();
};

// Steps that differ. In the first micro-step of `first` the trace is recorded: no prefetch, no
// reuse. `second` starts with persistent parameters resident and, without accumulation, is the
// first with a complete trace. All later steps equal `steady`.
struct FetchSchedule {
  FetchStep first;
  FetchStep second;
  FetchStep steady;
};

// Appends one micro-step (forward, backward) to the log.
void play_micro_step(FetchCoordinator& coordinator,
                     std::span<const ModuleEvent> order,
                     FetchLog& log);

// Replaces `step` by the next optimizer step: `micro_steps` micro-steps, release of everything, and
// after the optimizer the gathers of persistent parameters.
void play_step(FetchCoordinator& coordinator,
               std::span<const ModuleEvent> order,
               int micro_steps,
               FetchStep& step);

// A run from its start. `order` is that of one micro-step (module_order).
FetchSchedule schedule_fetches(const FetchModel& model,
                               const EngineConfig& config,
                               std::span<const ModuleEvent> order);

}  // namespace zeroplan
