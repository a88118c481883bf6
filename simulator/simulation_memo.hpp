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
#include <vector>

#include "base/fingerprint.hpp"
#include "simulator/engines/rank_program.hpp"
#include "simulator/rank_simulation.hpp"

namespace zeroplan::simulator {

// Of everything that decides a rank's run but the GPU.
Fingerprint fingerprint(const RankProgram& rank);

// A rank without its program: what a memo is asked with.
struct RankPrint {
  Fingerprint program;
  int rank = 0;
  bool is_representative = false;
  bool is_shown = false;
};

// The ranks of a plan that was simulated before, alone and side by side.
struct KnownRanks {
  std::vector<RankPrint> alone, side_by_side;
};

class SimulationMemo {
 public:
  using Runs = std::vector<RankSimulation>;  // of ranks that were played together

  // Null where it is not known. What it points to stays.
  std::shared_ptr<const Runs> find(const Fingerprint& key) const;
  std::shared_ptr<const Runs> keep(const Fingerprint& key, Runs runs);
  std::size_t size() const;

 private:
  struct Hash {
    std::size_t operator()(const Fingerprint& key) const {
      return static_cast<std::size_t>(key.high);
    }
  };
  mutable std::mutex mutex_;
  std::unordered_map<Fingerprint, std::shared_ptr<const Runs>, Hash> known_;
};

}  // namespace zeroplan::simulator
