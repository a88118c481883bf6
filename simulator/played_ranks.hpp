// A plan's ranks as searches simulate them: side by side or one alone, on GPUs of several sizes. A
// result that the memo has is not simulated again, and programs are written for the first that is.
//
// One thread. Checked by tests/property/search_property.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "simulator/planned_ranks.hpp"
#include "simulator/simulation_memo.hpp"

namespace zeroplan::simulator {

class PlayedRanks {
 public:
  using Write = std::function<std::vector<PlannedRank>()>;

  // `known`: of these programs where they were written before, else empty; may be null, as `memo`.
  PlayedRanks(Write write, SimulationMemo* memo, std::vector<RankPrint>* known = nullptr);

  const std::vector<RankPrint>& ranks() const { return ranks_; }

  // Every rank on a GPU of its own; the representative rank has no memory to count.
  // `coarse`: of many equal micro-steps that do not fold, the rest are taken to be as one of them.
  std::vector<RankSimulation> together(Bytes available, bool coarse);
  // Does one run with so much memory, its peers taken to keep up?
  bool runs_alone(std::size_t rank, Bytes available);

 private:
  const std::vector<PlannedRank>& written();
  template <typename Play>
  std::vector<RankSimulation> remembered(Fingerprint key, const Play& play);

  Write write_;
  SimulationMemo* memo_;
  std::vector<RankPrint> ranks_;
  std::vector<PlannedRank> written_;
};

// The time account of a step: of the slowest rank, and among equally slow ones of that which waits
// least in collectives, for which the others wait.
TimeAccount step_of(const std::vector<RankSimulation>& runs);

}  // namespace zeroplan::simulator
