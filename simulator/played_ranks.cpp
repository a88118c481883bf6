#include "simulator/played_ranks.hpp"

#include <algorithm>
#include <utility>

#include "simulator/lockstep.hpp"

namespace zeroplan::simulator {
namespace {

// Equal micro-steps in a row that are simulated where whether it runs is asked, or a coarse time.
// Assumed: what fails fails within them, and those that follow take as long
// (tests/property/simulation_property.cpp compares with all of them).
constexpr std::int64_t kSimulatedMicroSteps = 4;

enum class Way : std::uint8_t { together, coarse, alone };

void add_play(Bytes available, Way way, Fingerprint& key) {
  key.add(static_cast<std::uint64_t>(available.count()));
  key.add(static_cast<std::uint64_t>(way));
}

double waited(const TimeAccount& time) {
  return time.idle[static_cast<std::size_t>(IdleCause::communication)];
}

}  // namespace

PlayedRanks::PlayedRanks(Write write, SimulationMemo* memo, std::vector<RankPrint>* known)
    : write_(std::move(write)), memo_(memo) {
  if (memo != nullptr && known != nullptr) ranks_ = *known;
  if (!ranks_.empty()) return;
  for (const PlannedRank& rank : written()) {
    ranks_.push_back({rank.print        ? *rank.print
                      : memo != nullptr ? fingerprint(rank.program)
                                        : Fingerprint(),
                      rank.program.rank,
                      rank.is_representative,
                      rank.is_shown});
  }
  if (memo != nullptr && known != nullptr) *known = ranks_;
}

const std::vector<PlannedRank>& PlayedRanks::written() {
  if (written_.empty()) written_ = write_();
  return written_;
}

template <typename Play>
std::vector<RankSimulation> PlayedRanks::remembered(Fingerprint key, const Play& play) {
  if (memo_ == nullptr) return play();
  if (const auto found = memo_->find(key)) return *found;
  return *memo_->keep(key, play());
}

std::vector<RankSimulation> PlayedRanks::together(Bytes available, bool coarse) {
  Fingerprint key;
  for (const RankPrint& rank : ranks_) {
    key.add(rank.program.high);
    key.add(rank.program.low);
    key.add(rank.is_representative ? 1 : 0);
  }
  add_play(available, coarse ? Way::coarse : Way::together, key);
  return remembered(key, [&] {
    SimulationOptions options;
    options.available = available;
    if (coarse) options.most_repetitions = kSimulatedMicroSteps;
    std::vector<LockstepRank> together;
    for (const PlannedRank& rank : written()) {
      together.push_back({&rank.program, rank.is_representative});
    }
    return simulate_ranks(together, options);
  });
}

bool PlayedRanks::runs_alone(std::size_t rank, Bytes available) {
  Fingerprint key = ranks_[rank].program;
  add_play(available, Way::alone, key);
  const auto runs = remembered(key, [&]() -> std::vector<RankSimulation> {
    const SimulationOptions trial{
        .available = available, .most_repetitions = kSimulatedMicroSteps, .trial = true};
    return {simulate_rank(written()[rank].program, trial)};
  });
  return !runs.front().out_of_memory;
}

TimeAccount step_of(const std::vector<RankSimulation>& runs) {
  constexpr double kSame = 1e-9;
  const auto seconds = [](const RankSimulation& run) { return run.step.end - run.step.begin; };
  double longest = 0.0;
  for (const RankSimulation& run : runs) longest = std::max(longest, seconds(run));
  const TimeAccount* step = nullptr;
  for (const RankSimulation& run : runs) {
    if (seconds(run) < longest * (1.0 - kSame)) continue;
    const bool waits_less = step == nullptr || waited(run.step) < waited(*step);
    if (waits_less) step = &run.step;
  }
  return *step;
}

}  // namespace zeroplan::simulator
