// The timed step of a simulation as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a
// process a rank, in it a track a stream, memory by category as counters above them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "simulator/event_loop.hpp"

namespace zeroplan::simulator {

// What happened in a stretch of simulated time, s since the program's start.
struct Timeline {
  struct Span {
    StreamId stream;
    TaskIndex task;
    std::int32_t label;
    double begin, end;
  };
  struct Memory {  // held from `time` on
    double time;
    CategoryBytes held;
    Bytes reserved;
  };
  struct PhaseStart {
    Phase phase;
    double time;
  };
  std::vector<Span> spans;  // of one stream in order
  std::vector<Memory> memory;
  std::vector<PhaseStart> phases;  // as the compute stream gets there
};

// Collects what an event loop reports.
class TraceRecorder : public TimelineObserver {
 public:
  void task_ran(
      StreamId stream, TaskIndex task, std::int32_t label, Seconds begin, Seconds end) override;
  void memory_changed(Seconds time, const CategoryBytes& held, Bytes reserved) override;
  void phase_began(Phase phase, Seconds time) override;

  const Timeline& timeline() const { return timeline_; }

 private:
  Timeline timeline_;
};

// A rank's timed step. What is pointed to belongs to the caller.
struct TracedRank {
  std::string title;
  const Program* program = nullptr;
  const Timeline* timeline = nullptr;
  bool has_memory = true;  // false: what it holds is nobody's
};

// Trace Event Format, one process a rank, times in microseconds from the first event of all. Memory
// counters in MiB, one for each moment at which the sum moved by more than a thousandth of its
// peak, and at every peak.
std::string chrome_trace(std::span<const TracedRank> ranks);

}  // namespace zeroplan::simulator
