// What collectives and copies of a step take, added up as the simulator's tasks: for the bounds of
// a search.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "model/plan/plan.hpp"
#include "simulator/engines/communicators.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::tuner {

// Collectives of a step or of a micro-step.
struct MessageTimes {
  double taken = 0.0;   // sum of min(s, m) t
  double beside = 0.0;  // of these, of all but `alone`
  double alone = 0.0;   // s beside no kernel: gathers before a micro-step's first one, reductions
                        // on the compute stream, the last of each micro-step where it is waited for
  double ends = 0.0;    // how many of the latter
  double largest = 0.0;  // of min(s, m)
  double lighter = 0.0;  // s of those not alone with m < s
  // Least s - m of these.
  double heavier = std::numeric_limits<double>::infinity();
  double everyone = 0.0;  // s of collectives of all ranks
  double others = 0.0;    // s of the busiest other communicator
  double copies = 0.0;    // s of the busier queue of offloaded weights
  double blocked = 0.0;   // s in which the host waits for copies of offloaded weights
  int communicators = 0;  // besides that of all ranks
};

// Stage 3: of the window's first micro-step, and of each later one. With hpZ these find secondary
// partitions, and gather from fewer ranks.
struct GatherTimes {
  MessageTimes first;
  MessageTimes later;

  // Of a step of so many micro-steps.
  MessageTimes of(double micro_steps) const {
    MessageTimes sum = first;
    for (auto member : {&MessageTimes::taken,
                        &MessageTimes::beside,
                        &MessageTimes::alone,
                        &MessageTimes::lighter,
                        &MessageTimes::everyone,
                        &MessageTimes::others,
                        &MessageTimes::copies,
                        &MessageTimes::blocked}) {
      sum.*member += (micro_steps - 1.0) * later.*member;
    }
    if (micro_steps <= 1.0) return sum;
    sum.largest = std::max(first.largest, later.largest);
    sum.heavier = std::min(first.heavier, later.heavier);
    sum.communicators = std::max(first.communicators, later.communicators);
    return sum;
  }
};

// Adds up collectives as the simulator's tasks.
class MessageSum {
 public:
  explicit MessageSum(const Plan& plan)
      : plan_(plan),
        writer_(program_),
        tasks_(plan, writer_),
        communicators_(plan.layout(), writer_) {}

  // `alone`: how many of the `times` run beside no kernel.
  void add(Collective kind,
           Bytes bytes,
           std::int64_t ranks,
           bool across,
           std::int64_t times,
           std::int64_t alone = 0) {
    if (ranks <= 1) return;
    const CollectiveGroup group = communicators_.group_of(ranks, across);
    const simulator::Task& task =
        program_.tasks[static_cast<std::size_t>(tasks_.collective(kind, bytes, group))];
    const auto share = [&](simulator::SharedResource resource) {
      return static_cast<double>(task.demands[static_cast<std::size_t>(resource)]);
    };
    const double processors = share(simulator::SharedResource::multiprocessors);
    const double memory = share(simulator::SharedResource::gpu_memory);
    const double taken = std::min(processors, memory);
    const double seconds = task.duration.seconds() * static_cast<double>(times);
    taken_ += taken * seconds;
    const double idle = task.duration.seconds() * static_cast<double>(alone);
    alone_ += idle;
    beside_ += taken * (seconds - idle);
    largest_ = std::max(largest_, taken);
    if (memory < processors) {
      lighter_ += seconds - idle;
      heavier_ = std::min(heavier_, processors - memory);
    }
    if (group.ranks() == plan_.cluster.total_gpus()) everyone_ += seconds;
    if (group.ranks() != plan_.cluster.total_gpus()) {
      queue(communicators_.stream_of(group)) += seconds;
    }
  }

  // So many of those alone stand behind kernels that follow the last gradient.
  void note_end(std::int64_t times) { ends_ += static_cast<double>(times); }

  // This rank's part of a weight comes over the bus before its gather, on a queue of its own;
  // `read` of it from NVMe first (simulator/engines/fetch_writer.cpp, bring_own_parts).
  void bring(Bytes part, Bytes read) {
    const EngineConfig& config = plan_.engine;
    if (config.offload_parameter.device == OffloadDevice::none) return;
    const auto seconds = [&](simulator::TaskIndex task) {
      return program_.tasks[static_cast<std::size_t>(task)].duration.seconds();
    };
    copies_ += seconds(tasks_.copy(simulator::TaskKind::copy_to_device,
                                   part,
                                   config.offload_parameter.pin_memory,
                                   plan_.cluster.gpus_per_node()));
    if (read > Bytes::zero()) reads_ += seconds(tasks_.nvme(true, read));
  }

  double copies() const { return std::max(copies_, reads_); }
  double blocked() const { return copies_; }

  MessageTimes take() const {
    MessageTimes sum;
    sum.taken = taken_;
    sum.beside = beside_;
    sum.alone = alone_;
    sum.ends = ends_;
    sum.largest = largest_;
    sum.lighter = lighter_;
    sum.heavier = heavier_;
    sum.everyone = everyone_;
    for (const double seconds : queues_) sum.others = std::max(sum.others, seconds);
    sum.communicators = static_cast<int>(
        std::count_if(queues_.begin(), queues_.end(), [](double s) { return s > 0.0; }));
    return sum;
  }

 private:
  double& queue(simulator::StreamId stream) {
    const auto index = static_cast<std::size_t>(stream);
    if (queues_.size() <= index) queues_.resize(index + 1, 0.0);
    return queues_[index];
  }

  const Plan& plan_;
  simulator::Program program_;
  simulator::ProgramWriter writer_;
  simulator::TaskTable tasks_;
  simulator::Communicators communicators_;
  std::vector<double> queues_;
  double taken_ = 0.0, beside_ = 0.0, alone_ = 0.0, ends_ = 0.0;
  double largest_ = 0.0, everyone_ = 0.0, copies_ = 0.0, reads_ = 0.0;
  double lighter_ = 0.0, heavier_ = std::numeric_limits<double>::infinity();
};

}  // namespace zeroplan::tuner
