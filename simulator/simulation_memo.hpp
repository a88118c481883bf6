// Ranks that were simulated already: a search asks about many configurations whose ranks do exactly
// the same, because the knob they differ in has no effect beside their other knobs.
//
// Two runs are the same where the programs of their ranks are (instructions, durations, demands)
// and the GPUs they are tried on; nothing else reaches the simulation. Names are left out. May be
// called by several threads; answers do not depend on who was first, because equal programs have
// equal runs. Checked by tests/property/search_property.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/fingerprint.hpp"
#include "simulator/engines/rank_program.hpp"
#include "simulator/rank_simulation.hpp"

namespace zeroplan {

// Of everything that decides a rank's run but the GPU.
Fingerprint fingerprint(const RankProgram& rank);

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

class SimulationMemo {
 public:
  // Null where it is not known. What it points to stays.
  std::shared_ptr<const SimulatedRank> find(const Fingerprint& key) const;
  std::shared_ptr<const SimulatedRank> keep(const Fingerprint& key, SimulatedRank simulated);
  std::size_t size() const;

 private:
  struct Hash {
    std::size_t operator()(const Fingerprint& key) const {
      return static_cast<std::size_t>(key.high);
    }
  };
  mutable std::mutex mutex_;
  std::unordered_map<Fingerprint, std::shared_ptr<const SimulatedRank>, Hash> known_;
};

}  // namespace zeroplan
