#include "simulator/event_loop.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.hpp"

namespace zeroplan::simulator {
namespace {

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

}  // namespace

Bound bound_of(const TimeAccount& time) {
  const auto idle = [&](IdleCause cause) { return time.idle[static_cast<std::size_t>(cause)]; };
  const std::pair<double, Bound> shares[] = {
      {time.compute_busy - time.contention, Bound::compute},
      {idle(IdleCause::dispatch), Bound::dispatch},
      {idle(IdleCause::communication) + time.contention, Bound::communication},
      {idle(IdleCause::copies), Bound::pcie},
      {idle(IdleCause::cpu_optimizer), Bound::cpu_optimizer},
      {idle(IdleCause::host_memory), Bound::host},
      {idle(IdleCause::nvme), Bound::nvme}};
  return std::max_element(std::begin(shares),
                          std::end(shares),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

EventLoop::EventLoop(const Program& program, const AllocatorOptions& allocator, Peers peers)
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
      next_finish_(kNever),
      shared_stream_(peers == Peers::meet ? program.shared_stream : -1) {
  ZP_CHECK(!program.streams.empty(), "a program without a compute stream");
}

bool EventLoop::play(const Section& section) {
  next_ = section.begin;
  end_ = section.end;
  return go_on();
}

bool EventLoop::go_on() {
  if (again_) {
    after_meeting();
    if (!execute(program_.code[next_])) return false;
    again_ = false;
    ++next_;
  }
  const Instruction* const code = program_.code.data();
  for (std::size_t i = next_; i < end_; ++i) {
    if (execute(code[i])) continue;
    next_ = i;
    again_ = !ran_out_;
    return false;
  }
  next_ = end_;
  return true;
}

// It may have ended what the host waited for.
void EventLoop::after_meeting() {
  host_time_ = std::max(host_time_, now_);
  host_blocked_on_ = -1;
}

bool EventLoop::drain() {
  after_meeting();
  if (!host_waits_for_all()) return false;
  if (host_time_ > now_) pass_time(host_time_);
  time_.end = now_;
  time_.phase[static_cast<std::size_t>(stream_phase_)] += now_ - phase_began_;
  phase_began_ = now_;
  return true;
}

void EventLoop::restart_clock() {
  time_ = TimeAccount{};
  time_.begin = time_.end = phase_began_ = std::max(now_, host_time_);
}

std::vector<double> EventLoop::relative_state() const {
  std::vector<double> state = {
      host_time_ - now_, meeting_is_open_ ? 1.0 : 0.0, static_cast<double>(given_back_)};
  for (std::size_t s = 0; s < queues_.size(); ++s) {
    const RunningTask& running = running_[s];
    state.push_back(static_cast<double>(clocks_[s].queued - clocks_[s].completed));
    state.push_back(
        static_cast<double>(std::max<std::int64_t>(0, clocks_[s].awaited - clocks_[s].completed)));
    state.push_back(static_cast<double>(running.task));
    state.push_back(running.task < 0 ? 0.0 : finish_[s] - now_);
    state.push_back(running.task < 0 ? 0.0 : static_cast<double>(running.stage));
  }
  for (const EventQueue& queue : event_queues_) {
    state.push_back(static_cast<double>(queue.events.size() - queue.head));
  }
  return state;
}

Fingerprint EventLoop::memory_state() const {
  constexpr int kCategoryBits = 8;
  std::vector<std::uint64_t> holders;  // by block
  for (std::size_t slot = 0; slot < tensors_.size(); ++slot) {
    const Tensor& tensor = tensors_[slot];
    if (tensor.block == kNoBlock) continue;
    const auto block = static_cast<std::size_t>(tensor.block);
    if (block >= holders.size()) holders.resize(block + 1);
    holders[block] = (slot + 1) << kCategoryBits | static_cast<std::uint64_t>(tensor.category);
  }
  return allocator_.fingerprint(clocks_, [&](BlockId block) {
    const auto at = static_cast<std::size_t>(block);
    ZP_CHECK(at < holders.size() && holders[at] > 0, "a tensor in no slot");
    return holders[at];
  });
}

bool EventLoop::is_idle() const {
  return std::all_of(running_.begin(), running_.end(), [](const auto& r) { return r.task < 0; }) &&
         std::all_of(queues_.begin(), queues_.end(), [](const auto& q) { return q.empty(); });
}

void EventLoop::repeat(const Moment& from, const Moment& to, std::int64_t times, double shift) {
  allocator_.repeat(from.memory, to.memory, times);
  // A request that waits for a peer or for the GPU counts from before it; what is reserved did not
  // change, so its bytes stay.
  request_.before.takes += times * (to.memory.num_device_alloc - from.memory.num_device_alloc);
  request_.before.frees += times * (to.memory.num_device_free - from.memory.num_device_free);
  const auto n = static_cast<double>(times);
  host_time_ += shift;
  now_ += shift;
  phase_began_ += shift;
  meeting_.time += shift;
  for (RunningTask& running : running_) {
    running.since += shift;
    running.began += shift;
  }
  for (double& finish : finish_) finish += shift;
  next_finish_ += shift;
  const TimeAccount& earlier = from.time;
  const TimeAccount& later = to.time;
  const auto grow = [n](double& sum, double before, double after) { sum += n * (after - before); };
  for (std::size_t i = 0; i < kPhaseCount; ++i)
    grow(time_.phase[i], earlier.phase[i], later.phase[i]);
  for (std::size_t i = 0; i < kIdleCauseCount; ++i)
    grow(time_.idle[i], earlier.idle[i], later.idle[i]);
  for (std::size_t i = 0; i < kTaskKindCount; ++i)
    grow(time_.busy[i], earlier.busy[i], later.busy[i]);
  grow(time_.compute_busy, earlier.compute_busy, later.compute_busy);
  grow(time_.contention, earlier.contention, later.contention);
  grow(time_.dispatch, earlier.dispatch, later.dispatch);
  grow(time_.device_memory, earlier.device_memory, later.device_memory);
  time_.launches += times * (later.launches - earlier.launches);
  time_.device_calls += times * (later.device_calls - earlier.device_calls);
}

bool EventLoop::execute(const Instruction& instruction) {
  const auto index = static_cast<std::size_t>(instruction.index);
  const StreamId stream = instruction.stream;
  switch (instruction.opcode) {
    case Opcode::issue:
      return issue(instruction);
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
      return empty_cache();
    case Opcode::record_event:
      events_[index] = last_of(stream);
      return true;
    case Opcode::stream_wait:
      return wait_on_stream(stream, events_[index]);
    case Opcode::wait_stream:
      return wait_on_stream(stream, last_of(instruction.index));
    case Opcode::host_wait:
      return host_waits_for(events_[index]);
    case Opcode::host_wait_stream:
      return host_waits_for(last_of(stream));
    case Opcode::host_wait_device:
      return host_waits_for_all();
    case Opcode::queue_event:
      queue_event(event_queues_[index], stream);
      return true;
    case Opcode::throttle:
      return throttle(event_queues_[index], static_cast<std::size_t>(instruction.bytes));
    case Opcode::mark:
      host_phase_ = static_cast<Phase>(instruction.index);
      note_peak();
      return enqueue(stream, {StreamItem::Kind::mark, instruction.index, 0, instruction.label});
  }
  return true;
}

// --- the host thread

bool EventLoop::issue(const Instruction& instruction) {
  const Task& task = program_.tasks[static_cast<std::size_t>(instruction.index)];
  if (!again_) {
    host_time_ += task.dispatch.seconds();
    time_.dispatch += task.dispatch.seconds();
    if (task.duration != Seconds::zero()) time_.launches += task.work.times;
  }
  if (task.duration == Seconds::zero()) return true;
  const auto launches = std::min<std::int64_t>(task.work.times, kLaunchQueue);
  return enqueue(instruction.stream,
                 {.kind = StreamItem::Kind::task,
                  .index = instruction.index,
                  .label = instruction.label,
                  .launches = static_cast<std::int32_t>(launches)});
}

bool EventLoop::enqueue(StreamId stream, const StreamItem& item) {
  if (!advance(host_time_)) return false;
  StreamQueue& queue = queues_[index_of(stream)];
  while (queue.full()) {
    host_blocked_on_ = stream;
    ZP_CHECK(next_finish_ != kNever, "a stream waits for what is never queued");
    if (!finish_next()) return false;
    host_time_ = std::max(host_time_, now_);
  }
  host_blocked_on_ = -1;
  queue.push(item);
  ++clocks_[index_of(stream)].queued;
  if (running_[index_of(stream)].task < 0) start_and_share(stream);
  return true;
}

bool EventLoop::wait_on_stream(StreamId stream, const Event& event) {
  if (!again_ && (event.stream == stream || is_over(event))) return true;
  return enqueue(stream, {StreamItem::Kind::wait, event.stream, event.ticket, -1});
}

bool EventLoop::host_waits_for(const Event& event) {
  if (!advance(host_time_)) return false;
  host_blocked_on_ = event.stream;
  while (!is_over(event)) {
    ZP_CHECK(next_finish_ != kNever, "the host waits for what is never queued");
    if (!finish_next()) return false;
    host_time_ = std::max(host_time_, now_);
  }
  host_blocked_on_ = -1;
  return true;
}

bool EventLoop::host_waits_for_all() {
  for (StreamId stream = 0; index_of(stream) < queues_.size(); ++stream) {
    if (!host_waits_for(last_of(stream))) return false;
  }
  return true;
}

bool EventLoop::throttle(EventQueue& queue, std::size_t limit) {
  if (!advance(host_time_)) return false;
  while (queue.head < queue.events.size() && is_over(queue.events[queue.head])) pop(queue);
  while (queue.events.size() - queue.head > limit) {
    if (!host_waits_for(queue.events[queue.head])) return false;
    pop(queue);
  }
  if (queue.head == queue.events.size()) {
    queue.events.clear();
    queue.queued_then.clear();
    queue.head = 0;
  }
  return true;
}

void EventLoop::queue_event(EventQueue& queue, StreamId stream) {
  queue.events.push_back(last_of(stream));
  for (const StreamClock& clock : clocks_) queue.queued_then.push_back(clock.queued);
}

// For the allocator alone, what was enqueued before an event that the host has taken has ended on
// every stream, whatever the times say (docs/model.md, Host and streams).
void EventLoop::pop(EventQueue& queue) {
  const std::int64_t* queued = &queue.queued_then[queue.head * clocks_.size()];
  for (StreamClock& clock : clocks_) clock.awaited = std::max(clock.awaited, *queued++);
  ++queue.head;
}

// --- memory

bool EventLoop::allocate(const Instruction& instruction) {
  if (request_.stage == RequestStage::none) {
    if (!advance(host_time_)) return false;
    const AllocationRequest request{
        Bytes::of(instruction.bytes),
        instruction.stream,
        static_cast<std::uint64_t>(&instruction - program_.code.data())};
    request_.before = driver_calls();
    request_.allocation = allocator_.allocate(request, clocks_);
    const bool waits = request_.allocation.outcome == AllocationOutcome::must_synchronize;
    request_.stage = waits ? RequestStage::synchronizing : RequestStage::noting;
  }
  if (request_.stage == RequestStage::synchronizing) {
    if (!wait_for_frees()) return false;
    request_.allocation = allocator_.continue_allocation(clocks_);
    request_.stage = RequestStage::noting;
  }
  if (!pay_driver_calls_since(request_.before)) return false;
  request_.stage = RequestStage::none;
  return hold(instruction, request_.allocation);
}

bool EventLoop::hold(const Instruction& instruction, const Allocation& allocation) {
  if (allocation.outcome == AllocationOutcome::out_of_memory) {
    out_of_memory_ = {
        allocator_.out_of_memory(), instruction.category, host_phase_, instruction.label};
    ran_out_ = true;
    return false;
  }
  Tensor& tensor = tensors_[static_cast<std::size_t>(instruction.index)];
  ZP_CHECK(tensor.block == kNoBlock, "a slot is allocated twice");
  tensor = {allocation.block, instruction.category};
  if (allocation.block == kNoBlock) return true;
  const Bytes size = allocator_.size(allocation.block);
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

bool EventLoop::wait_for_frees() {
  for (StreamId stream = 0; index_of(stream) < queues_.size(); ++stream) {
    const std::int64_t ticket = allocator_.awaited(stream);
    if (ticket > 0 && !host_waits_for({stream, ticket})) return false;
  }
  return true;
}

bool EventLoop::empty_cache() {
  if (request_.stage == RequestStage::none) {
    if (!advance(host_time_)) return false;
    request_.before = driver_calls();
    const bool done = allocator_.empty_cache(clocks_);
    request_.stage = done ? RequestStage::noting : RequestStage::synchronizing;
  }
  if (request_.stage == RequestStage::synchronizing) {
    if (!wait_for_frees()) return false;
    allocator_.empty_cache(clocks_);
    request_.stage = RequestStage::noting;
  }
  if (!pay_driver_calls_since(request_.before)) return false;
  request_.stage = RequestStage::none;
  note_memory();
  return true;
}

EventLoop::DriverCalls EventLoop::driver_calls() const {
  const MemoryStats& stats = allocator_.stats();
  const AllocatorStat& reserved = stats.all().reserved_bytes;
  return {stats.num_device_alloc, stats.num_device_free, reserved.allocated, reserved.freed};
}

// Memory that is taken for the first time is not charged: it happens once, and it is fast.
bool EventLoop::pay_driver_calls_since(const DriverCalls& before) {
  const DriverCalls now = driver_calls();
  const std::int64_t frees = now.frees - before.frees;
  const std::int64_t takes = now.takes - before.takes;
  if (frees == 0 && (takes == 0 || given_back_ == 0)) return true;
  if (frees > 0 && !host_waits_for_all()) return false;  // cudaFree does
  given_back_ += now.freed - before.freed;
  const std::int64_t again = std::min(given_back_, now.taken - before.taken);
  given_back_ -= again;
  const std::int64_t calls = frees + (again > 0 ? takes : 0);
  const double cost = program_.device_memory.of(calls, Bytes::of(again)).seconds();
  host_time_ += cost;
  time_.device_memory += cost;
  time_.device_calls += calls;
  return true;
}

void EventLoop::note_memory() {
  if (observer_ == nullptr) return;
  observer_->memory_changed(Seconds::of(host_time_), memory_.now, allocator_.stats().reserved());
}

}  // namespace zeroplan::simulator
