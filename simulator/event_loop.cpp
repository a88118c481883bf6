#include "simulator/event_loop.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "model/check.hpp"

namespace zeroplan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Demands that are equal share alike: a task that follows its like changes nobody's rate.
std::vector<std::int32_t> demand_classes(const std::vector<Task>& tasks) {
  std::vector<Demands> seen;
  std::vector<std::int32_t> classes;
  classes.reserve(tasks.size());
  for (const Task& task : tasks) {
    const auto known = std::find(seen.begin(), seen.end(), task.demands);
    classes.push_back(static_cast<std::int32_t>(known - seen.begin()));
    if (known == seen.end()) seen.push_back(task.demands);
  }
  return classes;
}

std::size_t index_of(StreamId stream) { return static_cast<std::size_t>(stream); }

}  // namespace

EventLoop::EventLoop(const Program& program, const AllocatorOptions& allocator)
    : program_(program),
      allocator_(allocator),
      demand_class_(demand_classes(program.tasks)),
      queues_(program.streams.size()),
      running_(program.streams.size()),
      clocks_(program.streams.size()),
      finish_(program.streams.size(), kNever),
      events_(static_cast<std::size_t>(program.events)),
      tensors_(static_cast<std::size_t>(program.slots)),
      event_queues_(static_cast<std::size_t>(program.queues)),
      next_finish_(kNever) {
  ZP_CHECK(!program.streams.empty(), "a program without a compute stream");
}

bool EventLoop::play(const Section& section) {
  for (const Instruction& instruction : program_.of(section)) {
    if (!execute(instruction)) return false;
  }
  return true;
}

void EventLoop::drain() {
  host_waits_for_all();
  if (host_time_ > now_) pass_time(host_time_);
  time_.end = now_;
  time_.phase[static_cast<std::size_t>(stream_phase_)] += now_ - phase_began_;
  phase_began_ = now_;
}

void EventLoop::restart_clock() {
  time_ = TimeAccount{};
  time_.begin = time_.end = phase_began_ = std::max(now_, host_time_);
}

std::vector<double> EventLoop::relative_state() const {
  std::vector<double> state = {host_time_ - now_, static_cast<double>(given_back_)};
  for (std::size_t s = 0; s < queues_.size(); ++s) {
    const RunningTask& running = running_[s];
    state.push_back(static_cast<double>(clocks_[s].queued - clocks_[s].completed));
    state.push_back(static_cast<double>(running.task));
    state.push_back(running.task < 0 ? 0.0 : finish_[s] - now_);
  }
  for (const EventQueue& queue : event_queues_) {
    state.push_back(static_cast<double>(queue.events.size() - queue.head));
  }
  return state;
}

void EventLoop::repeat_since(const TimeAccount& earlier,
                             const MemoryStats& memory,
                             std::int64_t times) {
  allocator_.repeat_since(memory, times);
  const auto n = static_cast<double>(times);
  const double shift = n * (host_time_ - earlier.host);
  host_time_ += shift;
  now_ += shift;
  phase_began_ += shift;
  for (RunningTask& running : running_) {
    running.since += shift;
    running.began += shift;
  }
  for (double& finish : finish_) finish += shift;
  next_finish_ += shift;
  const auto grow = [n](double& now, double before) { now += n * (now - before); };
  for (std::size_t i = 0; i < kPhaseCount; ++i) grow(time_.phase[i], earlier.phase[i]);
  for (std::size_t i = 0; i < kIdleCauseCount; ++i) grow(time_.idle[i], earlier.idle[i]);
  for (std::size_t i = 0; i < kTaskKindCount; ++i) grow(time_.busy[i], earlier.busy[i]);
  grow(time_.compute_busy, earlier.compute_busy);
  grow(time_.contention, earlier.contention);
  grow(time_.dispatch, earlier.dispatch);
  grow(time_.device_memory, earlier.device_memory);
  time_.launches += times * (time_.launches - earlier.launches);
  time_.device_calls += times * (time_.device_calls - earlier.device_calls);
}

bool EventLoop::execute(const Instruction& instruction) {
  const auto index = static_cast<std::size_t>(instruction.index);
  const StreamId stream = instruction.stream;
  switch (instruction.opcode) {
    case Opcode::issue:
      issue(instruction);
      return true;
    case Opcode::allocate:
      return allocate(instruction);
    case Opcode::release:
      release(instruction.index);
      return true;
    case Opcode::move: {
      Tensor& to = tensors_[static_cast<std::size_t>(instruction.bytes)];
      ZP_CHECK(to.block == kNoBlock, "a slot is moved onto one that holds a tensor");
      to = std::exchange(tensors_[index], Tensor{});
      return true;
    }
    case Opcode::use_on_stream:
      if (tensors_[index].block != kNoBlock)
        allocator_.record_stream(tensors_[index].block, stream);
      return true;
    case Opcode::empty_cache:
      empty_cache();
      return true;
    case Opcode::record_event:
      events_[index] = last_of(stream);
      return true;
    case Opcode::stream_wait:
      wait_on_stream(stream, events_[index]);
      return true;
    case Opcode::wait_stream:
      wait_on_stream(stream, last_of(instruction.index));
      return true;
    case Opcode::host_wait:
      host_waits_for(events_[index]);
      return true;
    case Opcode::host_wait_stream:
      host_waits_for(last_of(stream));
      return true;
    case Opcode::host_wait_device:
      host_waits_for_all();
      return true;
    case Opcode::queue_event:
      event_queues_[index].events.push_back(last_of(stream));
      return true;
    case Opcode::throttle:
      throttle(event_queues_[index], static_cast<std::size_t>(instruction.bytes));
      return true;
    case Opcode::mark:
      host_phase_ = static_cast<Phase>(instruction.index);
      note_peak();
      enqueue(stream, {StreamItem::Kind::mark, instruction.index, 0, instruction.label});
      return true;
  }
  return true;
}

// --- the host thread

void EventLoop::issue(const Instruction& instruction) {
  const Task& task = program_.tasks[static_cast<std::size_t>(instruction.index)];
  host_time_ += task.dispatch.seconds();
  time_.dispatch += task.dispatch.seconds();
  if (task.duration == Seconds::zero()) return;
  ++time_.launches;
  enqueue(instruction.stream, {StreamItem::Kind::task, instruction.index, 0, instruction.label});
}

void EventLoop::enqueue(StreamId stream, const StreamItem& item) {
  advance(host_time_);
  StreamQueue& queue = queues_[index_of(stream)];
  while (queue.full()) {
    host_blocked_on_ = stream;
    ZP_CHECK(next_finish_ != kNever, "a stream waits for what is never queued");
    finish_next();
    host_time_ = std::max(host_time_, now_);
  }
  host_blocked_on_ = -1;
  queue.push(item);
  ++clocks_[index_of(stream)].queued;
  if (running_[index_of(stream)].task < 0) start_and_share(stream);
}

void EventLoop::wait_on_stream(StreamId stream, const Event& event) {
  if (event.stream == stream || complete(event)) return;
  enqueue(stream, {StreamItem::Kind::wait, event.stream, event.ticket, -1});
}

void EventLoop::host_waits_for(const Event& event) {
  advance(host_time_);
  host_blocked_on_ = event.stream;
  while (!complete(event)) {
    ZP_CHECK(next_finish_ != kNever, "the host waits for what is never queued");
    finish_next();
    host_time_ = std::max(host_time_, now_);
  }
  host_blocked_on_ = -1;
}

void EventLoop::host_waits_for_all() {
  for (StreamId stream = 0; index_of(stream) < queues_.size(); ++stream) {
    host_waits_for(last_of(stream));
  }
}

void EventLoop::throttle(EventQueue& queue, std::size_t limit) {
  advance(host_time_);
  while (queue.head < queue.events.size() && complete(queue.events[queue.head])) ++queue.head;
  while (queue.events.size() - queue.head > limit) host_waits_for(queue.events[queue.head++]);
  if (queue.head == queue.events.size()) {
    queue.events.clear();
    queue.head = 0;
  }
}

// --- memory

bool EventLoop::allocate(const Instruction& instruction) {
  advance(host_time_);
  const AllocationRequest request{Bytes::of(instruction.bytes),
                                  instruction.stream,
                                  static_cast<std::uint64_t>(&instruction - program_.code.data())};
  const DriverCalls before = driver_calls();
  Allocation result = allocator_.allocate(request, clocks_);
  if (result.outcome == AllocationOutcome::must_synchronize) {
    wait_for_frees();
    result = allocator_.continue_allocation(clocks_);
  }
  note_driver_calls_since(before);
  if (result.outcome == AllocationOutcome::out_of_memory) {
    out_of_memory_ = {
        allocator_.out_of_memory(), instruction.category, host_phase_, instruction.label};
    return false;
  }
  Tensor& tensor = tensors_[static_cast<std::size_t>(instruction.index)];
  ZP_CHECK(tensor.block == kNoBlock, "a slot is allocated twice");
  tensor = {result.block, instruction.category};
  if (result.block == kNoBlock) return true;
  const Bytes size = allocator_.size(result.block);
  at(memory_.now, tensor.category) += size;
  memory_.allocated += size;
  note_peak();
  note_memory();
  return true;
}

void EventLoop::note_peak() {
  const auto phase = static_cast<std::size_t>(host_phase_);
  if (memory_.allocated <= memory_.peak[phase]) return;
  memory_.peak[phase] = memory_.allocated;
  memory_.at_peak[phase] = memory_.now;
}

void EventLoop::release(SlotIndex slot) {
  Tensor& tensor = tensors_[static_cast<std::size_t>(slot)];
  if (tensor.block == kNoBlock) return;
  const Bytes size = allocator_.size(tensor.block);
  at(memory_.now, tensor.category) -= size;
  memory_.allocated -= size;
  allocator_.free(tensor.block, clocks_);
  tensor.block = kNoBlock;
  note_memory();
}

void EventLoop::wait_for_frees() {
  for (StreamId stream = 0; index_of(stream) < queues_.size(); ++stream) {
    const std::int64_t ticket = allocator_.awaited(stream);
    if (ticket > 0) host_waits_for({stream, ticket});
  }
}

void EventLoop::empty_cache() {
  advance(host_time_);
  const DriverCalls before = driver_calls();
  if (!allocator_.empty_cache(clocks_)) {
    wait_for_frees();
    allocator_.empty_cache(clocks_);
  }
  note_driver_calls_since(before);
  note_memory();
}

EventLoop::DriverCalls EventLoop::driver_calls() const {
  const MemoryStats& stats = allocator_.stats();
  const AllocatorStat& reserved = stats.all().reserved_bytes;
  return {stats.num_device_alloc, stats.num_device_free, reserved.allocated, reserved.freed};
}

// Memory that is taken for the first time does not count: it happens once, and it is fast.
void EventLoop::note_driver_calls_since(const DriverCalls& before) {
  const DriverCalls now = driver_calls();
  const std::int64_t frees = now.frees - before.frees;
  const std::int64_t takes = now.takes - before.takes;
  if (frees == 0 && (takes == 0 || given_back_ == 0)) return;
  if (frees > 0) host_waits_for_all();  // cudaFree does
  given_back_ += now.freed - before.freed;
  const std::int64_t again = std::min(given_back_, now.taken - before.taken);
  given_back_ -= again;
  const std::int64_t calls = frees + (again > 0 ? takes : 0);
  time_.device_memory += program_.device_memory.of(calls, Bytes::of(again)).seconds();
  time_.device_calls += calls;
}

void EventLoop::note_memory() {
  if (observer_ == nullptr) return;
  observer_->memory_changed(Seconds::of(host_time_), memory_.now, allocator_.stats().reserved());
}

// --- the streams

void EventLoop::advance(double until) {
  while (next_finish_ <= until) finish_next();
  if (until > now_) pass_time(until);
}

void EventLoop::pass_time(double to) {
  if (running_[kComputeStream].task < 0 && to > time_.begin) {
    time_.idle[static_cast<std::size_t>(idle_cause())] += to - std::max(now_, time_.begin);
  }
  now_ = to;
}

void EventLoop::finish_next() {
  const StreamId stream = next_stream_;
  pass_time(next_finish_);
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
  running.task = -1;
  finish_[index_of(stream)] = kNever;
  ++clocks_[index_of(stream)].completed;
  changed_ = false;
  start_ready(stream);
  wake_waiting(stream);
  // A task that follows its like keeps the rate; anything else changes everybody's.
  const bool alike =
      running.task >= 0 && demand_class_[static_cast<std::size_t>(running.task)] == before;
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
    if (item.kind == StreamItem::Kind::wait && !complete({item.index, item.ticket})) break;
    queue.pop();
    if (item.kind == StreamItem::Kind::task) {
      RunningTask& running = running_[index_of(stream)];
      const double alone = program_.tasks[static_cast<std::size_t>(item.index)].duration.seconds();
      running = {item.index, item.label, alone, running.rate, now_, now_};
      finish_[index_of(stream)] = now_ + alone / running.rate;
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
    if (!complete({item.index, item.ticket})) continue;
    changed_ = true;
    start_ready(stream);
  }
}

void EventLoop::begin_phase(Phase phase) {
  time_.phase[static_cast<std::size_t>(stream_phase_)] += now_ - phase_began_;
  phase_began_ = now_;
  stream_phase_ = phase;
  if (observer_ != nullptr) observer_->phase_began(phase, Seconds::of(now_));
}

void EventLoop::share_resources() {
  std::array<float, kSharedResourceCount> in_use{};
  for (const RunningTask& running : running_) {
    if (running.task < 0) continue;
    const Demands& demands = program_.tasks[static_cast<std::size_t>(running.task)].demands;
    for (std::size_t r = 0; r < demands.size(); ++r) in_use[r] += demands[r];
  }
  for (std::size_t s = 0; s < running_.size(); ++s) {
    RunningTask& running = running_[s];
    if (running.task < 0) continue;
    const Demands& demands = program_.tasks[static_cast<std::size_t>(running.task)].demands;
    float most = 1.0F;
    for (std::size_t r = 0; r < demands.size(); ++r) {
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

}  // namespace zeroplan
