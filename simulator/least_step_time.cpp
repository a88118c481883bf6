#include "simulator/least_step_time.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace zeroplan::simulator {
namespace {

bool is_left_out(const Task& task) {
  switch (task.kind) {
    case TaskKind::kernel:
    case TaskKind::collective:
    case TaskKind::copy_to_device:
      return false;
    case TaskKind::copy_to_host:
    case TaskKind::cpu_optimizer:
    case TaskKind::host_memory:
    case TaskKind::nvme:
      break;
  }
  return true;
}

// When the host and each stream are done with what they were given so far.
class Clocks {
 public:
  explicit Clocks(const Program& program)
      : program_(program),
        streams_(program.streams.size()),
        events_(static_cast<std::size_t>(program.events)),
        queues_(static_cast<std::size_t>(program.queues)) {}

  void walk(const Section& section) {
    for (const Instruction& instruction : program_.of(section)) follow(instruction);
  }
  double compute() const { return streams_[kComputeStream]; }

 private:
  void follow(const Instruction& instruction) {
    const auto index = static_cast<std::size_t>(instruction.index);
    double& stream = streams_[instruction.stream];
    switch (instruction.opcode) {
      case Opcode::issue:
        issue(program_.tasks[index], stream);
        break;
      case Opcode::record_event:
        events_[index] = stream;
        break;
      case Opcode::stream_wait:
        stream = std::max(stream, events_[index]);
        break;
      case Opcode::wait_stream:
        stream = std::max(stream, streams_[index]);
        break;
      case Opcode::host_wait:
        host_ = std::max(host_, events_[index]);
        break;
      case Opcode::host_wait_stream:
        host_ = std::max(host_, stream);
        break;
      case Opcode::host_wait_device:
        host_ = std::max(host_, *std::max_element(streams_.begin(), streams_.end()));
        break;
      case Opcode::queue_event:
        queues_[index].push_back(stream);
        break;
      case Opcode::throttle:
        throttle(queues_[index], static_cast<std::size_t>(instruction.bytes));
        break;
      case Opcode::allocate:
      case Opcode::release:
      case Opcode::move:
      case Opcode::use_on_stream:
      case Opcode::empty_cache:
      case Opcode::mark:
        break;
    }
  }

  void issue(const Task& task, double& stream) {
    if (is_left_out(task)) return;
    host_ += task.dispatch.seconds();
    if (task.duration == Seconds::zero()) return;
    stream = std::max(stream, host_) + task.duration.seconds();
  }

  // Finished events leave the queue; the host waits for the oldest of the rest.
  void throttle(std::deque<double>& queue, std::size_t limit) {
    while (!queue.empty() && queue.front() <= host_) queue.pop_front();
    while (queue.size() > limit) {
      host_ = std::max(host_, queue.front());
      queue.pop_front();
    }
  }

  const Program& program_;
  double host_ = 0.0;
  std::vector<double> streams_;
  std::vector<double> events_;
  std::vector<std::deque<double>> queues_;
};

}  // namespace

Seconds least_passes_time(const RankProgram& rank) {
  Clocks clocks(rank.program);
  for (const RepeatedSection& part : rank.steady.micro_steps) {
    for (std::int64_t i = 0; i < part.times; ++i) clocks.walk(part.section);
  }
  return Seconds::of(clocks.compute());
}

}  // namespace zeroplan::simulator
