#include "tuner/step_lower_bound.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/optimizer_step.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::tuner {
namespace {

// Walks the actions as simulator/engines/deepspeed_actions.cpp writes them. Clocks count from the
// end of the passes' kernels; the host's is unknown, so before everything, until it first waits for
// the compute stream.
class TailWalk {
 public:
  TailWalk(const Plan& plan, const EngineConfig& config)
      : plan_(plan), config_(config), writer_(program_), tasks_(plan, writer_) {}

  TailWork run() {
    EngineActions actions;
    optimizer_step(config_, plan_.engine_parameters, /*overflowed=*/false, actions);
    for (const EngineAction& action : actions.actions) {
      if (action.kind == ActionKind::swap_in) reads_.push_back(tasks_.action(config_, action));
    }
    for (const EngineAction& action : actions.actions) add(action);
    // The loop reads the loss, so that the device is idle, and goes on (write_optimizer_step).
    const double loop = plan_.stages.empty() ? tasks_.host_costs().step.seconds() : 0.0;
    return {std::max({compute_, host_, read_, written_, 0.0}) + loop, dispatch_ + loop};
  }

 private:
  static constexpr double kUnknown = -std::numeric_limits<double>::infinity();

  void add(const EngineAction& action) {
    switch (action.kind) {
      case ActionKind::host_wait_device:
        wait_for_compute();
        break;
      case ActionKind::host_wait_stream:
        if (on_compute(action)) wait_for_compute();
        break;
      case ActionKind::collective:  // a norm's sum, whose value the host asks for
        if (action.host_waits && on_compute(action)) wait_for_compute();
        break;
      case ActionKind::swap_in:
        swap_in();
        break;
      case ActionKind::swap_out:
        host_ = std::max(host_, written_);
        queue(tasks_.action(config_, action), written_);
        if (action.host_waits) host_ = std::max(host_, written_);
        break;
      default:
        work(action);
        break;
    }
  }

  void work(const EngineAction& action) {
    const simulator::TaskIndex index = tasks_.action(config_, action);
    if (index == simulator::kNoTask) return;
    // The dispatch thread itself updates and casts, and waits for new weights to be written.
    if (action.on_host || action.kind == ActionKind::swap_out_weights) {
      on_host(index);
      return;
    }
    kernel(action, index);
    const bool copies =
        action.kind == ActionKind::copy_to_host || action.kind == ActionKind::copy_to_device;
    const bool waits = action.host_waits || (copies && !action.pinned);
    if (waits && on_compute(action)) wait_for_compute();
  }

  // Reads are one sub-group ahead where pipeline_read says so.
  void swap_in() {
    const bool ahead = config_.offload_optimizer.pipeline_read;
    if (!ahead || next_read_ == 0) read();
    host_ = std::max(host_, read_done_);
    ++next_read_;
    if (ahead) read();
  }
  void read() {
    if (next_read_ >= reads_.size()) return;
    queue(reads_[next_read_], read_);
    read_done_ = read_;
  }

  static bool on_compute(const EngineAction& action) {
    return action.stream == EngineStream::compute;
  }
  const simulator::Task& task(simulator::TaskIndex index) const {
    return program_.tasks[static_cast<std::size_t>(index)];
  }
  void issue(const simulator::Task& task) {
    host_ += task.dispatch.seconds();
    dispatch_ += task.dispatch.seconds();
  }
  void kernel(const EngineAction& action, simulator::TaskIndex index) {
    issue(task(index));
    if (on_compute(action)) compute_ = std::max(compute_, host_) + task(index).duration.seconds();
  }
  void on_host(simulator::TaskIndex index) {
    issue(task(index));
    host_ += task(index).duration.seconds();
  }
  // On a stream of NVMe.
  void queue(simulator::TaskIndex index, double& stream) {
    if (index == simulator::kNoTask) return;
    issue(task(index));
    stream = std::max(stream, host_) + task(index).duration.seconds();
  }
  void wait_for_compute() { host_ = std::max(host_, compute_); }

  const Plan& plan_;
  const EngineConfig& config_;
  simulator::Program program_;
  simulator::ProgramWriter writer_;
  simulator::TaskTable tasks_;
  std::vector<simulator::TaskIndex> reads_;
  std::size_t next_read_ = 0;
  double host_ = kUnknown;
  double compute_ = 0.0;
  double read_ = kUnknown;  // of NVMe
  double written_ = kUnknown;
  double read_done_ = kUnknown;
  double dispatch_ = 0.0;
};

}  // namespace

TailWork tail_work(const Plan& plan) {
  EngineConfig config = plan.engine;
  config.rank = heaviest_rank(config, plan.engine_parameters);
  return TailWalk(plan, config).run();
}

}  // namespace zeroplan::tuner
