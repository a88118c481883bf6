// A plan's ranks on GPUs of different sizes: how much smaller the GPU can be, and how they run on
// it.
//
// Pure; one thread. Cost: a few simulations of each rank. Checked by
// tests/property/simulation_property.cpp, tests/property/lockstep_property.cpp and
// tests/property/search_property.cpp.
#pragma once

#include <optional>
#include <vector>

#include "simulator/planned_ranks.hpp"
#include "simulator/simulation_memo.hpp"

namespace zeroplan {

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

// The ranks side by side, and the one that needs the most of its GPU. Precondition: one of them
// does not stand in for others.
SimulatedRank simulate_on(const std::vector<PlannedRank>& ranks, const CapacityQuestion& question);

// Of everything that decides what simulate_on() answers.
Fingerprint fingerprint_of(const std::vector<PlannedRank>& ranks, const CapacityQuestion& question);

// The step of the ranks side by side, on GPUs without a limit.
TimeAccount unlimited_step(const std::vector<PlannedRank>& ranks);

}  // namespace zeroplan
