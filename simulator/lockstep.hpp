// Ranks whose programs differ, simulated beside each other.
//
// A collective of Program::shared_stream begins on all of them when the last has come to it (its
// stream is free, its waits are over), and ends on all when the last has done its part: NCCL's
// kernels of one collective wait for each other. The n-th collective of one rank is the n-th of
// every other (NCCL's rule for a communicator); ranks that disagree in number or kind are a
// ZP_CHECK failure. Between two collectives ranks know nothing of each other, so that each is
// simulated as far as it can go, the one furthest behind first.
//
// Equal micro-steps in a row, and equal steps, are counted in the place of being simulated once
// every rank, and how far ranks are apart, is as it was one before. One rank meets nobody.
//
// Cost: the sum of the ranks. Deterministic. Left out: a rank's part of a collective goes at the
// rate that its own work leaves it; how slower and faster parts share buffers is not simulated.
// Checked by tests/simulator/lockstep_test.cpp and tests/property/lockstep_property.cpp.
#pragma once

#include <span>
#include <vector>

#include "simulator/engines/rank_program.hpp"
#include "simulator/rank_simulation.hpp"

namespace zeroplan::simulator {

// One of the ranks, and what is to be told of its run.
struct LockstepRank {
  const RankProgram* program = nullptr;
  bool has_no_limit = false;                                // of memory, whatever the GPU has
  TimelineObserver* observer = nullptr;                     // gets the timed step, unfolded
  std::vector<AllocatorEvent>* allocator_events = nullptr;  // gets all of the run
};

// Results in the order of `ranks`; observers of `options` are not asked. Where one runs out of
// memory, all stop: its result says so, and the others hold what was seen until there.
std::vector<RankSimulation> simulate_ranks(std::span<const LockstepRank> ranks,
                                           const SimulationOptions& options = {});

// One rank whose peers keep up.
RankSimulation simulate_rank(const RankProgram& rank, const SimulationOptions& options = {});

}  // namespace zeroplan::simulator
