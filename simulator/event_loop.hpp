// Plays a Program: when each task runs, how much memory is held, where the host and the streams
// wait. One rank. Its peers are taken to keep up, or they are loops beside this one
// (lockstep.hpp): then playing stops where the rank comes to a collective, and where its own part
// of one has ended, until meet() says when the last of them has.
//
// The host thread goes through the instructions, each at its own cost, and runs ahead of the GPU
// until something makes it wait. A stream runs its work in order. Tasks that run at the same time
// slow each other down where their demands on a resource exceed it (program.hpp, Demands): the
// share of resource r in use is D_r = sum of demands, and a task goes at the rate
// 1 / max(1, max over the r it uses of D_r). The allocator runs inside, at the moment the host
// calls it, because which freed blocks it may use depends on how far the streams have come.
//
// Cost: O(streams) an instruction, no heap allocation once the tables have their size.
// Deterministic. Errors: ZP_CHECK for programs that wait for what is never queued.
// Left out: several processes on one GPU; preemption; host threads beside the dispatch thread.
// Checked by tests/simulator/event_loop_test.cpp, tests/simulator/lockstep_test.cpp and
// tests/property/simulation_property.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "model/predict/step_result.hpp"
#include "simulator/allocator.hpp"
#include "simulator/program.hpp"
#include "simulator/stream_queue.hpp"

namespace zeroplan::simulator {

// Why the compute stream had nothing to run.
enum class IdleCause : std::uint8_t {
  communication,
  copies,
  cpu_optimizer,
  host_memory,
  nvme,
  dispatch,  // the host had not issued it yet
};
inline constexpr std::size_t kIdleCauseCount = 6;

// What one stretch of the program took; filled by EventLoop between two calls of restart_clock.
struct TimeAccount {
  double begin = 0.0;                          // s since the program's start
  double end = 0.0;                            // when host and streams are done; else the host's
  std::array<double, kPhaseCount> phase{};     // s, by marks of the compute stream
  std::array<double, kIdleCauseCount> idle{};  // s of the compute stream
  std::array<double, kTaskKindCount> busy{};   // s by kind of task, over all streams
  double compute_busy = 0.0;                   // s with a task on the compute stream
  double contention = 0.0;                     // of these, lost to sharing
  double dispatch = 0.0;                       // s of host work issuing
  double device_memory = 0.0;                  // s of the host in cudaMalloc and cudaFree
  std::int64_t device_calls = 0;               // of these
  double host = 0.0;                           // s, the host's clock when the account was taken
  std::int64_t launches = 0;
};

// What took most of it.
Bound bound_of(const TimeAccount& time);

// What is held on the GPU, and its highest moments.
struct MemoryAccount {
  CategoryBytes now{};
  Bytes allocated;
  std::array<CategoryBytes, kPhaseCount> at_peak{};  // at the highest moment of each phase
  std::array<Bytes, kPhaseCount> peak{};
};

// Gets what happens, for traces; null costs nothing.
class TimelineObserver {
 public:
  virtual ~TimelineObserver() = default;
  virtual void task_ran(
      StreamId stream, TaskIndex task, std::int32_t label, Seconds begin, Seconds end) = 0;
  virtual void memory_changed(Seconds time, const CategoryBytes& held, Bytes reserved) = 0;
  virtual void phase_began(Phase phase, Seconds time) = 0;
};

// Where a program ended for lack of memory.
struct LoopOutOfMemory {
  OutOfMemory numbers;
  MemoryCategory category = MemoryCategory::activations;
  Phase phase = Phase::forward;
  std::int32_t label = -1;
};

// A rank has come to a collective that it shares with others, or its own part of it has ended.
struct Meeting {
  std::int64_t number = 0;  // 2 n: n-th collective begins; 2 n + 1: it ends
  TaskIndex task = -1;
  double time = 0.0;  // s, when this rank came
};

enum class Peers : std::uint8_t {
  keep_up,  // they come to every collective when this rank does
  meet      // they are simulated too: meetings on Program::shared_stream
};

class EventLoop {
 public:
  EventLoop(const Program& program,
            const AllocatorOptions& allocator,
            Peers peers = Peers::keep_up);

  // Goes on from where the last section ended. False: out of memory, and nothing may be simulated
  // then; or a meeting is open, and go_on() plays the rest of the section.
  bool play(const Section& section);
  bool go_on();
  // Waits until host and streams are idle. False: a meeting is open; to be called again.
  bool drain();

  // Open: no time passes until meet() closes it.
  bool meeting_is_open() const { return meeting_is_open_; }
  const Meeting& meeting() const { return meeting_; }
  const Task& task_of_meeting() const {
    return program_.tasks[static_cast<std::size_t>(meeting_.task)];
  }
  // The last peer came at `time`, s, not before this rank.
  void meet(double time);

  // Time accounts begin anew; memory peaks stay.
  void restart_clock();

  // Where host and streams stand against each other, without absolute times: two equal states
  // (and equal states of memory) have equal futures. Seconds and counts, in a fixed order.
  std::vector<double> relative_state() const;
  // The allocator's state, each tensor by the slot that holds it: whatever instruction made it.
  Fingerprint memory_state() const;
  // Has the GPU nothing to do?
  bool is_idle() const;
  // What lay between two moments of one section happens `times` times more: clocks move by `shift`
  // (s), accounts and the allocator's counters grow. Precondition: the state was the same at both.
  struct Moment {
    TimeAccount time;
    MemoryStats memory;
  };
  Moment moment() const { return {account(), allocator_.stats()}; }
  void repeat(const Moment& from, const Moment& to, std::int64_t times, double shift);

  const TimeAccount& time() const { return time_; }
  TimeAccount account() const {
    TimeAccount account = time_;
    account.host = host_time_;
    return account;
  }
  const MemoryAccount& memory() const { return memory_; }
  const CachingAllocator& allocator() const { return allocator_; }
  bool ran_out_of_memory() const { return ran_out_; }
  const LoopOutOfMemory& out_of_memory() const { return out_of_memory_; }
  Seconds now() const { return Seconds::of(host_time_ > now_ ? host_time_ : now_); }
  Phase host_phase() const { return host_phase_; }
  StreamClocks clocks() const { return clocks_; }

  void observe(TimelineObserver* observer) { observer_ = observer; }
  // Of the allocator; for snapshots.
  void record_allocator_events(std::vector<AllocatorEvent>* events) {
    allocator_.record_events(events);
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  static constexpr std::size_t index_of(StreamId stream) {
    return static_cast<std::size_t>(stream);
  }

  struct Event {
    StreamId stream = 0;
    std::int64_t ticket = 0;
  };
  struct Tensor {
    BlockId block = kNoBlock;
    MemoryCategory category = MemoryCategory::activations;
  };
  // Events in the order of their recording, the oldest at `head`.
  struct EventQueue {
    std::vector<Event> events;
    std::vector<std::int64_t> queued_then;  // by event and stream: StreamClock::queued
    std::size_t head = 0;
  };

  // Those that take time end with false where a meeting is open; the instruction that needs them is
  // executed again behind it, and does not do twice what it has done (again_).
  bool execute(const Instruction& instruction);
  bool issue(const Instruction& instruction);
  bool enqueue(StreamId stream, const StreamItem& item);
  bool allocate(const Instruction& instruction);
  bool hold(const Instruction& instruction, const Allocation& allocation);
  bool empty_cache();
  void release(SlotIndex slot);
  bool throttle(EventQueue& queue, std::size_t limit);
  void queue_event(EventQueue& queue, StreamId stream);
  void pop(EventQueue& queue);  // the oldest
  bool wait_for_frees();
  // What the allocator has asked of the driver since then takes the host's time.
  struct DriverCalls {
    std::int64_t takes = 0, frees = 0;
    std::int64_t taken = 0, freed = 0;  // bytes
  };
  DriverCalls driver_calls() const;
  bool pay_driver_calls_since(const DriverCalls& before);
  void note_peak();
  void note_memory();

  bool is_over(const Event& event) const {
    return clocks_[static_cast<std::size_t>(event.stream)].completed >= event.ticket;
  }
  Event last_of(StreamId stream) const {
    return {stream, clocks_[static_cast<std::size_t>(stream)].queued};
  }
  bool wait_on_stream(StreamId stream, const Event& event);
  bool host_waits_for(const Event& event);
  bool host_waits_for_all();

  // Time goes to `until`, finishing what finishes on the way.
  bool advance(double until) {
    while (next_finish_ <= until) {
      if (!finish_next()) return false;
    }
    if (until <= now_) return true;
    if (meeting_is_open_) return false;
    pass_time(until);
    return true;
  }
  bool finish_next();
  void complete(StreamId stream);
  void pass_time(double to);
  void open_meeting(std::int32_t task);
  void after_meeting();
  bool finish_of_shared();
  const Demands& demands_of(const RunningTask& running) const;
  void start_and_share(StreamId stream);
  void start_ready(StreamId stream);
  void wake_waiting(StreamId finished);
  void begin_phase(Phase phase);
  void share_resources();
  void find_next_finish();
  IdleCause idle_cause() const;
  IdleCause cause_on(StreamId stream, int depth) const;

  const Program& program_;
  CachingAllocator allocator_;
  std::vector<std::int32_t> demand_class_;  // by task
  std::vector<StreamQueue> queues_;
  std::vector<RunningTask> running_;
  std::vector<StreamClock> clocks_;
  std::vector<double> finish_;  // of the running task, by stream
  std::vector<Event> events_;
  std::vector<Tensor> tensors_;
  std::vector<EventQueue> event_queues_;

  double now_ = 0.0;        // streams have come so far
  double host_time_ = 0.0;  // the host thread has
  double next_finish_ = 0.0;
  StreamId next_stream_ = -1;
  StreamId host_blocked_on_ = -1;
  bool changed_ = false;         // streams woke others since it was reset
  std::int64_t given_back_ = 0;  // bytes that the driver has and had given before

  // Where playing stands: the next instruction of the section; whether a meeting stopped it there;
  // what it has asked the allocator by then.
  enum class RequestStage : std::uint8_t { none, synchronizing, noting };
  struct Request {
    RequestStage stage = RequestStage::none;
    Allocation allocation;
    DriverCalls before;
  };
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  bool again_ = false;
  bool ran_out_ = false;  // of memory
  Request request_;

  StreamId shared_stream_ = -1;  // on which peers meet; -1: none
  bool meeting_is_open_ = false;
  Meeting meeting_;
  Demands waiting_demands_{};  // of a collective that waits for peers
  Phase host_phase_ = Phase::init;
  Phase stream_phase_ = Phase::init;
  double phase_began_ = 0.0;

  TimeAccount time_;
  MemoryAccount memory_;
  LoopOutOfMemory out_of_memory_;
  TimelineObserver* observer_ = nullptr;
};

}  // namespace zeroplan::simulator
