// Streams and events without a clock: in which order work was enqueued, and what is known to have
// ended.
//
// Nothing says when a kernel that is not run would end, so there are two ends of what can be.
// Ending::done: all work has ended when it is enqueued. Ending::pending: it ends when the host
// waits - for it, or for work of any stream that was enqueued later, because streams run side by
// side and none of them falls far behind. A GPU lies between them. Thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "rehearsal/libraries/gpu/settings.hpp"

namespace zeroplan::gpu {

struct Event {
  std::uint64_t after =
      0;  // the work that was enqueued until then; 0: never recorded, which counts as ended
  std::chrono::steady_clock::time_point recorded;
};

class Streams {
 public:
  explicit Streams(Ending ending) : ending_(ending) {}

  static constexpr std::size_t kDefault = 0;  // the null stream
  std::size_t create(int priority);
  int priority(std::size_t stream) const;

  void enqueue(std::size_t stream);
  void record(Event& event);

  bool has_ended(const Event& event) const;
  bool has_ended(std::size_t stream) const;  // all that is enqueued on it

  // The host waits.
  void synchronize(const Event& event);
  void synchronize(std::size_t stream);
  void synchronize();

 private:
  struct Stream {
    int priority = 0;
    std::uint64_t last = 0;  // its latest work
  };
  bool has_ended_at(std::uint64_t number) const;

  mutable std::mutex mutex_;
  Ending ending_;
  std::deque<Stream> streams_{1};
  std::uint64_t enqueued_ = 0;  // pieces of work, events among them, numbered from 1
  std::uint64_t ended_ = 0;
};

// Milliseconds of this machine's clock between two recorded events, never 0: programs divide by
// them.
float milliseconds_between(const Event& first, const Event& second);

// The process's own.
Streams& streams();

}  // namespace zeroplan::gpu
