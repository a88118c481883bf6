// The streams' side of the event loop: what runs, at which rate, and what it ends.
#include <algorithm>
#include <limits>

#include "base/check.hpp"
#include "simulator/event_loop.hpp"

namespace zeroplan::simulator {

// --- the streams

void EventLoop::pass_time(double to) {
  if (running_[kComputeStream].task < 0 && to > time_.begin) {
    time_.idle[static_cast<std::size_t>(idle_cause())] += to - std::max(now_, time_.begin);
  }
  now_ = to;
}

bool EventLoop::finish_next() {
  if (meeting_is_open_) return false;
  pass_time(next_finish_);
  if (next_stream_ == shared_stream_) return finish_of_shared();
  complete(next_stream_);
  return true;
}

void EventLoop::complete(StreamId stream) {
  RunningTask& running = running_[index_of(stream)];
  const Task& task = program_.tasks[static_cast<std::size_t>(running.task)];
  const double took = now_ - running.began;
  time_.busy[static_cast<std::size_t>(task.kind)] += took;
  if (stream == kComputeStream) {
    time_.compute_busy += took;
    time_.contention += took - task.duration.seconds();
  }
  if (observer_ != nullptr) {
    observer_->task_ran(
        stream, running.task, running.label, Seconds::of(running.began), Seconds::of(now_));
  }
  const std::int32_t before = demand_class_[static_cast<std::size_t>(running.task)];
  const bool ran = running.stage == TaskStage::runs;
  running.task = -1;
  finish_[index_of(stream)] = kNever;
  ++clocks_[index_of(stream)].completed;
  changed_ = false;
  start_ready(stream);
  wake_waiting(stream);
  // A task that follows its like keeps the rate; anything else changes everybody's.
  const bool alike =
      ran && running.task >= 0 && demand_class_[static_cast<std::size_t>(running.task)] == before;
  if (!alike || changed_) share_resources();
  find_next_finish();
}

void EventLoop::start_and_share(StreamId stream) {
  changed_ = false;
  start_ready(stream);
  if (running_[index_of(stream)].task >= 0 || changed_) share_resources();
  find_next_finish();
}

// Starts what the stream may run now. Marks and waits that are over take no time.
void EventLoop::start_ready(StreamId stream) {
  StreamQueue& queue = queues_[index_of(stream)];
  StreamClock& clock = clocks_[index_of(stream)];
  bool moved = false;
  while (!queue.empty()) {
    const StreamItem item = queue.front();
    if (item.kind == StreamItem::Kind::wait && !is_over({item.index, item.ticket})) break;
    queue.pop();
    if (item.kind == StreamItem::Kind::task) {
      RunningTask& running = running_[index_of(stream)];
      const double alone = program_.tasks[static_cast<std::size_t>(item.index)].duration.seconds();
      running = {item.index, item.label, alone, running.rate, now_, now_, TaskStage::runs};
      finish_[index_of(stream)] = now_ + alone / running.rate;
      if (stream == shared_stream_) open_meeting(item.index);
      break;
    }
    if (item.kind == StreamItem::Kind::mark) begin_phase(static_cast<Phase>(item.index));
    ++clock.completed;
    moved = true;
  }
  if (moved) wake_waiting(stream);
}

// Streams that waited for this one go on.
void EventLoop::wake_waiting(StreamId finished) {
  for (StreamId stream = 0; index_of(stream) < queues_.size(); ++stream) {
    const StreamQueue& queue = queues_[index_of(stream)];
    if (running_[index_of(stream)].task >= 0 || queue.empty()) continue;
    const StreamItem& item = queue.front();
    if (item.kind != StreamItem::Kind::wait || item.index != finished) continue;
    if (!is_over({item.index, item.ticket})) continue;
    changed_ = true;
    start_ready(stream);
  }
}

// --- collectives that peers share
//
// A rank that comes early or is done early waits with its kernel on the GPU: NCCL's spin there for
// their peers, on as many multiprocessors as they run on (NCCL user guide, NCCL_MAX_CTAS), and move
// nothing meanwhile. Its part runs at the rank's own rate; the collective has ended when every
// rank's part has.

void EventLoop::open_meeting(std::int32_t task) {
  meeting_.number += meeting_.task < 0 ? 0 : 1;
  meeting_.task = task;
  meeting_.time = now_;
  meeting_is_open_ = true;
}

// False: the rank's own part has ended.
bool EventLoop::finish_of_shared() {
  RunningTask& running = running_[index_of(shared_stream_)];
  switch (running.stage) {
    case TaskStage::waits_to_begin:
      running.stage = TaskStage::runs;
      running.since = now_;
      share_resources();
      find_next_finish();
      return true;
    case TaskStage::runs:
      open_meeting(running.task);
      return false;
    case TaskStage::waits_to_end:
      complete(shared_stream_);
      return true;
  }
  return true;
}

void EventLoop::meet(double time) {
  ZP_CHECK(meeting_is_open_ && time >= now_, "a meeting that is not open, or is over");
  meeting_is_open_ = false;
  const bool ends = meeting_.number % 2 == 1;
  if (time == now_) {
    if (ends) complete(shared_stream_);
    return;
  }
  RunningTask& running = running_[index_of(shared_stream_)];
  running.stage = ends ? TaskStage::waits_to_end : TaskStage::waits_to_begin;
  finish_[index_of(shared_stream_)] = time;
  constexpr auto kHeld = static_cast<std::size_t>(SharedResource::multiprocessors);
  waiting_demands_ = {};
  waiting_demands_[kHeld] = program_.tasks[static_cast<std::size_t>(running.task)].demands[kHeld];
  share_resources();
  find_next_finish();
}

const Demands& EventLoop::demands_of(const RunningTask& running) const {
  if (running.stage != TaskStage::runs) return waiting_demands_;
  return program_.tasks[static_cast<std::size_t>(running.task)].demands;
}

void EventLoop::begin_phase(Phase phase) {
  time_.phase[static_cast<std::size_t>(stream_phase_)] += now_ - phase_began_;
  phase_began_ = now_;
  stream_phase_ = phase;
  if (observer_ != nullptr) observer_->phase_began(phase, Seconds::of(now_));
}

void EventLoop::share_resources() {
  std::array<float, kSharedResourceCount> in_use{};
  const auto together = std::count_if(
      running_.begin(), running_.end(), [](const auto& running) { return running.task >= 0; });
  // What runs alone asks for no more than there is: nothing has to be added up.
  const bool shares = together > 1;
  for (const RunningTask& running : running_) {
    if (!shares || running.task < 0) continue;
    const Demands& demands = demands_of(running);
    for (std::size_t r = 0; r < demands.size(); ++r) in_use[r] += demands[r];
  }
  for (std::size_t s = 0; s < running_.size(); ++s) {
    RunningTask& running = running_[s];
    if (running.task < 0 || running.stage != TaskStage::runs) continue;
    const Demands& demands = demands_of(running);
    float most = 1.0F;
    for (std::size_t r = 0; shares && r < demands.size(); ++r) {
      if (demands[r] > 0.0F) most = std::max(most, in_use[r]);
    }
    const double rate = 1.0 / static_cast<double>(most);
    running.remaining -= (now_ - running.since) * running.rate;
    running.since = now_;
    running.rate = rate;
    finish_[s] = now_ + std::max(0.0, running.remaining) / rate;
  }
}

void EventLoop::find_next_finish() {
  next_finish_ = kNever;
  for (StreamId stream = 0; index_of(stream) < finish_.size(); ++stream) {
    if (finish_[index_of(stream)] >= next_finish_) continue;
    next_finish_ = finish_[index_of(stream)];
    next_stream_ = stream;
  }
}

// --- why the compute stream is idle

IdleCause EventLoop::idle_cause() const {
  if (!queues_[kComputeStream].empty()) return cause_on(kComputeStream, 0);
  if (host_blocked_on_ >= 0) return cause_on(host_blocked_on_, 0);
  return IdleCause::dispatch;
}

// What a stream is busy with; where it waits itself, what that stream is busy with.
IdleCause EventLoop::cause_on(StreamId stream, int depth) const {
  const RunningTask& running = running_[index_of(stream)];
  if (running.task >= 0) {
    switch (program_.tasks[static_cast<std::size_t>(running.task)].kind) {
      case TaskKind::kernel:  // of another stream: copies in and out of buckets
      case TaskKind::collective:
        return IdleCause::communication;
      case TaskKind::copy_to_device:
      case TaskKind::copy_to_host:
        return IdleCause::copies;
      case TaskKind::cpu_optimizer:
        return IdleCause::cpu_optimizer;
      case TaskKind::host_memory:
        return IdleCause::host_memory;
      case TaskKind::nvme:
        return IdleCause::nvme;
    }
  }
  const StreamQueue& queue = queues_[index_of(stream)];
  const bool waits = !queue.empty() && queue.front().kind == StreamItem::Kind::wait;
  if (!waits || depth > static_cast<int>(queues_.size())) return IdleCause::dispatch;
  return cause_on(queue.front().index, depth + 1);
}

}  // namespace zeroplan::simulator
