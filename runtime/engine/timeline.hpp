// What one rank did in a step, by the machine's clock: kernel calls, engine actions, collectives,
// phases, memory. Written in the format of the simulator's traces (model/chrome_trace.hpp).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/engine/engine_action.hpp"
#include "model/predict/step_result.hpp"
#include "runtime/collectives/communicator.hpp"

namespace zeroplan::runtime {

// What the simulator's traces call an action; empty for what takes no time, and for collectives,
// which record themselves.
std::string_view trace_name(ActionKind kind);

class Timeline {
 public:
  enum Track { compute, collectives };

  // Nothing is recorded before begin() and after end().
  void begin();
  void end();
  bool records() const { return records_; }
  static Seconds now();

  void span(Track track, std::string_view name, std::string_view about, Seconds begin, Seconds end);
  // What follows is of that phase.
  void phase(Phase phase);
  void memory(const CategoryBytes& held);

  // Memory: the moments at which the sum moved by a thousandth of its peak, and the peak.
  std::string chrome_trace(const std::string& title) const;

 private:
  struct Span {
    Track track;
    std::string name, about;
    Seconds begin, end;
  };
  struct PhaseStart {
    Phase phase;
    Seconds time;
  };
  struct Held {
    CategoryBytes bytes;
    Seconds time;
  };

  bool records_ = false;
  Seconds began_, ended_;
  std::vector<Span> spans_;
  std::vector<PhaseStart> phases_;
  std::vector<Held> memory_;
};

// A rank's communicator that also records; a collective counts from its start, or from the end of
// the one before, to the return of its wait.
std::unique_ptr<Communicator> recorded(Communicator& group, Timeline& timeline);

}  // namespace zeroplan::runtime
