// What one rank did in a step, by the machine's clock: kernel calls, engine actions, collectives,
// phases, memory. Written in the format of the simulator's traces (model/chrome_trace.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/engine/engine_action.hpp"
#include "model/memory_category.hpp"
#include "runtime/collectives/communicator.hpp"

namespace zeroplan::runtime {

// What the simulator's traces call an action; empty for what takes no time, and for collectives,
// which record themselves.
std::string_view trace_name(ActionKind kind);

// Something that the device did, by Timeline's clock.
struct DeviceActivity {
  std::size_t span = 0;  // open when it was ordered
  std::string name;      // of a kernel; "copy", "set"
  int stream = 0;
  Seconds begin, end;
};

// Who knows when the device did what, where that is not when it was ordered.
class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;
  virtual void begin() = 0;
  // What this thread orders from now on belongs to that span, until close().
  virtual void open(std::size_t span) = 0;
  virtual void close() = 0;
  // Everything that belongs to a span. The device has nothing left to do.
  virtual std::vector<DeviceActivity> finish() = 0;
};

class Timeline {
 public:
  enum Track { compute, collectives, nvme };

  // Something on a track, from here to the end of the scope: of the host's time, or of what the
  // device did for it.
  class Scope {
   public:
    Scope(Timeline* timeline, Track track, std::string_view name, std::string_view about = "");
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Timeline* timeline_;  // null: nothing is recorded
    std::size_t span_ = 0;
  };

  Timeline() = default;
  // Of a device that works beside the host. settle: waits until it is done. recorder: says what it
  // did, and may be null: then every span waits for the device.
  Timeline(std::function<void()> settle, std::unique_ptr<DeviceRecorder> recorder)
      : settle_(std::move(settle)), recorder_(std::move(recorder)) {}

  // Nothing is recorded before begin() and after end().
  void begin();
  void end();
  bool records() const { return records_; }
  bool has_recorder() const { return recorder_ != nullptr; }
  // Waits for the device where nobody else knows when it was done.
  void settle() const {
    if (settle_ && !recorder_) settle_();
  }
  // The device goes; what it did stays.
  void forget_device() {
    settle_ = nullptr;
    recorder_.reset();
  }
  // In kernels and copies that the recorder saw; zero without one.
  Seconds device_busy() const { return device_busy_; }
  static Seconds now();

  // Behind the one before on a track of what works beside the host: begin is moved where it must.
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

  void take_activities();

  std::function<void()> settle_;
  std::unique_ptr<DeviceRecorder> recorder_;
  std::vector<DeviceActivity> activities_;
  Seconds device_busy_;
  bool records_ = false;
  Seconds began_, ended_;
  std::vector<Span> spans_;
  std::vector<PhaseStart> phases_;
  std::vector<Held> memory_;
  Seconds drive_free_;  // when the last transfer ended
};

// A rank's communicator that also records; a collective counts from its start, or from the end of
// the one before, to the return of its wait.
std::unique_ptr<Communicator> recorded(Communicator& group, Timeline& timeline);

}  // namespace zeroplan::runtime
