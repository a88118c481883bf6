// Plays one rank's run to a steady step, alone or beside peers: it stops where something outside
// has to be known, and goes on from there.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/engines/rank_program.hpp"
#include "simulator/event_loop.hpp"
#include "simulator/rank_simulation.hpp"

namespace zeroplan::simulator {

class RankPlayer {
 public:
  // What it stopped for.
  enum class Stop : std::uint8_t {
    repetition,  // the end of a section that is simulated again: perhaps it can be counted instead
    meeting,     // EventLoop::meet() must be called on loop()
    end,
    out_of_memory
  };
  // Where a repetition began or ended, and how host, streams and allocator stood there.
  struct Snapshot {
    EventLoop::Moment moment;
    std::vector<double> loop;  // EventLoop::relative_state
    Fingerprint allocator;
  };
  // How far it is in a section that is simulated several times.
  struct Progress {
    std::size_t part = 0;  // of the run
    std::int64_t times = 1;
    std::int64_t begun = 0;
    std::int64_t ended = 0;
  };

  // `rank` must outlive the player.
  RankPlayer(const RankProgram& rank, const SimulationOptions& options, Peers peers);

  Stop go_on();

  EventLoop& loop() { return loop_; }
  const EventLoop& loop() const { return loop_; }
  const Progress& progress() const { return progress_; }

  // Of the section at hand: [0] where it began, [i] where repetition i ended. States are empty
  // where nothing folds.
  const std::vector<Snapshot>& snapshots() const { return snapshots_; }
  // Repetitions of the section are counted in place of being simulated: `times` times what lay
  // between snapshots `last` - `cycle` and `last`, which is `period` s long.
  void skip(std::int64_t times, std::size_t cycle, std::size_t last, double period);
  // The rest of the repetitions is left out.
  void leave_out_rest() { progress_.times = progress_.ended; }

  // Of what was simulated so far.
  RankSimulation result() const;

 private:
  enum class After : std::uint8_t { nothing, settled, warm, timed };
  // A section of the run and what is done behind its last repetition.
  struct Part {
    Section section;
    std::int64_t times = 1;
    After after = After::nothing;
  };

  void add(const StepSections& step, After after);
  bool finish(const Part& part);
  Snapshot snapshot() const;

  EventLoop loop_;
  SimulationOptions options_;
  std::vector<Part> parts_;
  Progress progress_;
  bool in_section_ = false;
  std::vector<Snapshot> snapshots_;
  RankSimulation result_;
};

}  // namespace zeroplan::simulator
