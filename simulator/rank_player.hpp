// Plays one rank's run to a steady step, alone or beside peers: it stops where something outside
// has to be known, and goes on from there.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
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
    equal_step,  // it and all later ones are as the one before: skip_steps() counts them
    meeting,     // EventLoop::meet() must be called on loop()
    end,
    out_of_memory
  };
  // Where a repetition began or ended, and how host, streams and memory stood there.
  struct Snapshot {
    EventLoop::Moment moment;
    std::vector<double> loop;  // EventLoop::relative_state
    Fingerprint memory;
  };
  // Both are the same state of host, streams and memory; absolute times do not count.
  static bool same(const Snapshot& a, const Snapshot& b);
  // Two times (s) are equal within rounding: they are sums in another order.
  static bool close(double x, double y) { return std::abs(x - y) <= 1e-10; }
  // From `a` on until `b`, s.
  static double between(const Snapshot& a, const Snapshot& b) {
    return b.moment.time.host - a.moment.time.host;
  }
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

  // Behind Stop::equal_step: how long the step before was, s.
  double last_step() const { return between(*steps_.before, *steps_.now); }
  // All steps that are left take `period` s each and are not simulated.
  void skip_steps(double period);

  // Of what was simulated so far.
  RankSimulation result() const;

 private:
  // A section of the run may begin a step, and its last repetition may end one.
  enum class Begins : std::uint8_t { section, step, timed_step };
  enum class Ends : std::uint8_t { section, settled_step, timed_step };
  struct Part {
    Section section;
    std::int64_t times = 1;
    Begins begins = Begins::section;
    Ends ends = Ends::section;
  };
  // The steps of the run in their order.
  struct Steps {
    std::size_t count = 0;
    std::size_t alike_from = 0;  // the first of those that have equal instructions up to the last
    std::size_t begun = 0;
    bool at_begin = false;                // of the last that is counted as begun
    std::optional<Snapshot> before, now;  // where the last two began, if the GPU was idle
  };

  void add(const StepSections& step, Begins begins, Ends ends);
  bool begin_step();
  bool start_clock();
  bool finish(Ends ends);
  Snapshot snapshot() const;

  EventLoop loop_;
  SimulationOptions options_;
  std::vector<Part> parts_;
  Progress progress_;
  Steps steps_;
  bool in_section_ = false;
  std::vector<Snapshot> snapshots_;
  RankSimulation result_;
};

}  // namespace zeroplan::simulator
