#include "simulator/lockstep.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "simulator/rank_player.hpp"

namespace zeroplan::simulator {
namespace {

using Stop = RankPlayer::Stop;

class Lockstep {
 public:
  Lockstep(std::span<const LockstepRank> ranks, const SimulationOptions& options)
      : options_(options) {
    const Peers peers = ranks.size() > 1 ? Peers::meet : Peers::keep_up;
    const bool observed = std::any_of(ranks.begin(), ranks.end(), [](const LockstepRank& rank) {
      return rank.observer != nullptr || rank.allocator_events != nullptr;
    });
    options_.fold = options.fold && !observed;
    players_.reserve(ranks.size());
    for (const LockstepRank& rank : ranks) {
      SimulationOptions own = options_;
      if (rank.has_no_limit) own.available = Bytes::infinite();
      own.observer = rank.observer;
      own.allocator_events = rank.allocator_events;
      players_.push_back({RankPlayer(*rank.program, own, peers), State::ready});
    }
  }

  std::vector<RankSimulation> run() {
    const bool ran = play();
    std::vector<RankSimulation> results;
    results.reserve(players_.size());
    for (const Rank& rank : players_) {
      results.push_back(rank.player.result());
      if (!ran && rank.state == State::out_of_memory) {
        results.back().out_of_memory = rank.player.loop().out_of_memory();
      }
    }
    return results;
  }

 private:
  enum class State : std::uint8_t {
    ready,
    between_repetitions,
    before_equal_step,
    meets,
    ended,
    out_of_memory
  };
  struct Rank {
    RankPlayer player;
    State state = State::ready;
  };

  // False: out of memory.
  bool play() {
    for (;;) {
      Rank* next = furthest_behind(State::ready);
      if (next == nullptr && all(State::ended)) return true;
      if (next == nullptr && all(State::meets)) {
        meet();
        continue;
      }
      // At the end of a repetition a rank waits for the others, if they do not wait for it; so it
      // does before an equal step.
      if (next == nullptr) next = furthest_behind(State::between_repetitions);
      if (next == nullptr && count_equal_steps()) continue;
      if (next == nullptr) next = furthest_behind(State::before_equal_step);
      ZP_CHECK(next != nullptr, "ranks disagree in the number of their collectives");
      switch (next->player.go_on()) {
        case Stop::repetition:
          next->state = State::between_repetitions;
          count_equal_repetitions();
          break;
        case Stop::equal_step:
          next->state = State::before_equal_step;
          break;
        case Stop::meeting:
          next->state = State::meets;
          break;
        case Stop::end:
          next->state = State::ended;
          break;
        case Stop::out_of_memory:
          next->state = State::out_of_memory;
          return false;
      }
    }
  }

  bool all(State state) const {
    return std::all_of(
        players_.begin(), players_.end(), [&](const Rank& rank) { return rank.state == state; });
  }

  Rank* furthest_behind(State state) {
    Rank* found = nullptr;
    for (Rank& rank : players_) {
      if (rank.state != state) continue;
      if (found == nullptr || rank.player.loop().now() < found->player.loop().now()) found = &rank;
    }
    return found;
  }

  // False: some rank's next step is none, or they would drift apart.
  bool count_equal_steps() {
    if (!all(State::before_equal_step)) return false;
    const double period = players_.front().player.last_step();
    const bool alike = std::all_of(players_.begin(), players_.end(), [&](const Rank& rank) {
      return RankPlayer::close(rank.player.last_step(), period);
    });
    if (!alike) return false;
    for (Rank& rank : players_) {
      rank.player.skip_steps(period);
      rank.state = State::ready;
    }
    return true;
  }

  // NCCL's rule: the same collectives in the same order.
  void meet() {
    const EventLoop& first = players_.front().player.loop();
    const Task& expected = first.task_of_meeting();
    double last = 0.0;
    for (const Rank& rank : players_) {
      const EventLoop& loop = rank.player.loop();
      const Task& task = loop.task_of_meeting();
      ZP_CHECK(loop.meeting().number == first.meeting().number &&
                   task.duration == expected.duration && task.name == expected.name,
               "ranks disagree in the order of their collectives");
      last = std::max(last, loop.meeting().time);
    }
    for (Rank& rank : players_) {
      rank.player.loop().meet(last);
      rank.state = State::ready;
    }
  }

  // Once every rank ends a repetition in the state in which it was one or a few repetitions before,
  // and they are as far apart, the rest are counted in such cycles. The allocator's blocks
  // alternate where what is gathered does.
  void count_equal_repetitions() {
    const RankPlayer::Progress& first = players_.front().player.progress();
    std::int64_t ended = first.ended;
    std::int64_t begun = first.begun;
    for (const Rank& rank : players_) {
      const RankPlayer::Progress& progress = rank.player.progress();
      if (progress.part != first.part || progress.ended == 0) return;
      ended = std::min(ended, progress.ended);
      begun = std::max(begun, progress.begun);
    }
    const std::int64_t left = first.times - begun;
    if (left <= 0) return;
    const auto last = static_cast<std::size_t>(ended);
    const bool enough = options_.most_repetitions && ended >= *options_.most_repetitions;
    std::size_t cycle = options_.fold ? cycle_of(last) : 0;
    if (cycle == 0 && !enough) return;
    if (enough && options_.trial) {
      for (Rank& rank : players_) rank.player.leave_out_rest();
      return;
    }
    if (cycle == 0) cycle = 1;
    const std::int64_t times = left / static_cast<std::int64_t>(cycle);
    if (times == 0) return;
    double period = 0.0;
    for (const Rank& rank : players_) period = std::max(period, period_of(rank, cycle, last));
    for (Rank& rank : players_) rank.player.skip(times, cycle, last, period);
  }

  static double period_of(const Rank& rank, std::size_t cycle, std::size_t last) {
    const std::vector<RankPlayer::Snapshot>& snapshots = rank.player.snapshots();
    return RankPlayer::between(snapshots[last - cycle], snapshots[last]);
  }

  // The least number of repetitions after which all ranks are as they were; 0: none.
  std::size_t cycle_of(std::size_t last) const {
    constexpr std::size_t kMost = 16;
    for (std::size_t cycle = 1; cycle <= std::min(kMost, last); ++cycle) {
      if (repeats(cycle, last)) return cycle;
    }
    return 0;
  }

  bool repeats(std::size_t cycle, std::size_t last) const {
    const double period = period_of(players_.front(), cycle, last);
    return std::all_of(players_.begin(), players_.end(), [&](const Rank& rank) {
      const std::vector<RankPlayer::Snapshot>& snapshots = rank.player.snapshots();
      return RankPlayer::same(snapshots[last - cycle], snapshots[last]) &&
             RankPlayer::close(period_of(rank, cycle, last), period);
    });
  }

  SimulationOptions options_;
  std::vector<Rank> players_;
};

}  // namespace

std::vector<RankSimulation> simulate_ranks(std::span<const LockstepRank> ranks,
                                           const SimulationOptions& options) {
  ZP_CHECK(!ranks.empty(), "a run without ranks");
  return Lockstep(ranks, options).run();
}

RankSimulation simulate_rank(const RankProgram& rank, const SimulationOptions& options) {
  const LockstepRank alone{
      .program = &rank, .observer = options.observer, .allocator_events = options.allocator_events};
  return std::move(simulate_ranks({&alone, 1}, options).front());
}

}  // namespace zeroplan::simulator
