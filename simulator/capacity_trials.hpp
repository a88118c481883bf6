// A plan's ranks on GPUs of different sizes: how much smaller the GPU can be, and how they run on
// it.
//
// Pure; one thread. Cost: a few simulations of each rank. Checked by
// tests/property/simulation_property.cpp, tests/property/lockstep_property.cpp and
// tests/property/search_property.cpp.
#pragma once

#include "simulator/played_ranks.hpp"

namespace zeroplan::simulator {

// Standard deviations beyond which nobody asks whether it fits.
inline constexpr double kFarTail = 3.5;

// A GPU, of which context and libraries take `outside`.
struct GpuCapacity {
  Bytes room;
  Bytes outside;
};

// The GPU, and how closely it is asked for.
struct CapacityQuestion {
  GpuCapacity gpu;
  double sd = 0.0;         // relative, of what is needed
  double threshold = 0.0;  // factor by which the GPU must be smaller for the plan to fit
  // Only on which side of `threshold` the answer lies; near the limit times are coarser.
  bool verdict_alone = false;
  // The capacity threshold first, and nothing else where the ranks do not run there:
  // SimulatedRank::stopped.
  bool threshold_first = false;
};

// How the rank that needs the most, or the one that was asked for, ran on GPUs of several sizes,
// beside its peers.
struct SimulatedRank {
  int rank = 0;
  double factor = 0.0;  // by which the GPU can be smaller, for all of them
  RankSimulation run;   // on the GPU, or without a limit where it does not run there
  // By any rank, which is not always the one that has the least room, or by the one asked for.
  Bytes most_reserved;
  // Not simulated: not even the capacity threshold is enough, or no GPU at all would be.
  bool stopped = false;
};

// The ranks side by side, and the one that needs the most of its GPU. Precondition: one of them
// does not stand in for others.
SimulatedRank simulate_on(PlayedRanks& ranks, const CapacityQuestion& question);

}  // namespace zeroplan::simulator
