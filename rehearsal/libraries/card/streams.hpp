// Streams and events without a clock: in which order work was enqueued, and what is known to have
// ended.
//
// Nothing says when a kernel that is not run would end, so there are two ends of what can be.
// Ending::done: all work has ended when it is enqueued. Ending::pending: it ends when the host
// waits for it - for its stream, for an event behind it, for the device - or for other work that
// came after it through an event. A card lies between them. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "rehearsal/libraries/card/settings.hpp"

namespace zeroplan::card {

// What has to have ended: of each stream the number of its last piece of work.
using Positions = std::vector<std::uint64_t>;  // by stream; shorter: 0

struct Event {
  Positions after;  // empty: never recorded, which counts as ended
  std::chrono::steady_clock::time_point recorded;
};

class Streams {
 public:
  explicit Streams(Ending ending);

  static constexpr std::size_t kDefault = 0;  // the null stream
  std::size_t create(int priority);
  int priority(std::size_t stream) const;

  void enqueue(std::size_t stream);
  void record(Event& event, std::size_t stream);
  void wait(std::size_t stream, const Event& event);  // the stream, not the host

  bool has_ended(const Event& event) const;
  bool has_ended(std::size_t stream) const;  // all that is enqueued

  // The host waits.
  void synchronize(const Event& event);
  void synchronize(std::size_t stream);
  void synchronize();

 private:
  struct Stream {
    int priority = 0;
    Positions after;  // of its last piece of work, itself included
  };
  bool has_ended_locked(const Positions& after) const;
  void end(const Positions& after);

  mutable std::mutex mutex_;
  Ending ending_;
  std::deque<Stream> streams_;
  Positions ended_;
};

// Milliseconds of this machine's clock between two recorded events, never 0: programs divide by
// them.
float milliseconds_between(const Event& first, const Event& second);

// The process's own.
Streams& streams();

}  // namespace zeroplan::card
