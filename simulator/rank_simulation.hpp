// A rank's run from its start to a steady step: how it is to be simulated, and what it holds and
// how long a step takes. lockstep.hpp plays it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "simulator/event_loop.hpp"

namespace zeroplan::simulator {

struct SimulationOptions {
  // Of the GPU for this process's tensors; infinite: the peaks without a limit.
  Bytes available = Bytes::infinite();
  // Equal micro-steps in a row, and equal steps, are simulated until the state repeats, then
  // counted. Off: all simulated.
  bool fold = true;
  // Near a GPU's limit every flush leaves the allocator in another state, so that nothing folds,
  // while what one micro-step needs does not grow. After so many equal micro-steps in a row the
  // rest are taken to be as the last one. Absent: all are simulated that do not fold.
  std::optional<std::int64_t> most_repetitions = std::nullopt;
  // Only whether it runs is asked: ends with the first steady step, and the rest of equal
  // micro-steps is left out. No times.
  bool trial = false;
  TimelineObserver* observer = nullptr;                     // gets the timed step, unfolded
  std::vector<AllocatorEvent>* allocator_events = nullptr;  // gets all of the run
};

struct RankSimulation {
  MemoryAccount memory;
  MemoryStats stats;       // of the allocator, from the start to the end of a steady step
  Bytes static_allocated;  // between steps
  TimeAccount step;        // of one steady step
  std::vector<SegmentSnapshot> segments;         // at the end, where events were asked for
  std::optional<LoopOutOfMemory> out_of_memory;  // then the rest is what was seen until there
};

}  // namespace zeroplan::simulator
