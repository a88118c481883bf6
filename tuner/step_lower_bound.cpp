#include "tuner/step_lower_bound.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/optimizer_step.hpp"
#include "model/engine/transients.hpp"
#include "model/plan/host_work.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan {
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
      if (action.kind != ActionKind::swap_in) continue;
      reads_.push_back(action.elements * action.dtype);
    }
    for (const EngineAction& action : actions.actions) add(action);
    // The loop reads the loss, so that the device is idle, and goes on (write_optimizer_step).
    const double loop = plan_.stages.empty() ? tasks_.host_costs().step.seconds() : 0.0;
    return {std::max({compute_, host_, read_, written_, 0.0}) + loop, dispatch_ + loop};
  }

 private:
  static constexpr double kUnknown = -std::numeric_limits<double>::infinity();

  void add(const EngineAction& action) {
    const Bytes bytes = action.elements * action.dtype;
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
      case ActionKind::flatten:
      case ActionKind::concatenate:
        kernel(action, tasks_.kernel("flatten", bytes * 2));
        break;
      case ActionKind::cast:
        kernel(action, tasks_.kernel("cast", bytes * 2));
        break;
      case ActionKind::norm:
      case ActionKind::overflow_scan:
      case ActionKind::scale:
      case ActionKind::optimizer_step:
      case ActionKind::update_weights:
        update(action, bytes);
        break;
      case ActionKind::copy_to_host:
      case ActionKind::copy_to_device:
        copy(action, bytes);
        break;
      case ActionKind::swap_in:
        swap_in();
        break;
      case ActionKind::swap_out:
        host_ = std::max(host_, written_);
        queue(tasks_.nvme(false, bytes), written_);
        if (action.host_waits) host_ = std::max(host_, written_);
        break;
      case ActionKind::swap_out_weights:
        on_host(tasks_.nvme(false, bytes));
        break;
      default:
        break;
    }
  }

  void update(const EngineAction& action, Bytes bytes) {
    if (action.on_host) {
      host_update(action);
      return;
    }
    const Bytes scratch = action_temporaries(config_, action);
    const Bytes both = bytes + action.elements * config_.master_dtype;
    switch (action.kind) {
      case ActionKind::norm:
        kernel(action, tasks_.kernel("norm", bytes + scratch * 2, 3));
        break;
      case ActionKind::overflow_scan:
        kernel(action, tasks_.kernel("overflow scan", bytes + scratch * 2, 5));
        break;
      case ActionKind::scale:
        kernel(action, tasks_.kernel("scale gradient", bytes * 2));
        break;
      case ActionKind::optimizer_step:
        kernel(action,
               tasks_.gpu_optimizer(action.elements,
                                    config_.master_dtype,
                                    config_.optimizer,
                                    config_.optimizer_implementation));
        break;
      default:
        kernel(action, tasks_.kernel("update weights", both));
        break;
    }
    if (action.host_waits && on_compute(action)) wait_for_compute();
  }

  // The dispatch thread itself does it.
  void host_update(const EngineAction& action) {
    on_host(action.kind == ActionKind::optimizer_step
                ? tasks_.cpu_optimizer(action.elements)
                : tasks_.host_memory(host_pass_name(action.kind), host_pass(config_, action)));
  }

  void copy(const EngineAction& action, Bytes bytes) {
    const TaskKind direction =
        action.kind == ActionKind::copy_to_host ? TaskKind::copy_to_host : TaskKind::copy_to_device;
    kernel(action, tasks_.copy(direction, bytes, action.pinned, plan_.cluster.gpus_per_node()));
    if ((action.host_waits || !action.pinned) && on_compute(action)) wait_for_compute();
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
    queue(tasks_.nvme(true, reads_[next_read_]), read_);
    read_done_ = read_;
  }

  static bool on_compute(const EngineAction& action) {
    return action.stream == EngineStream::compute;
  }
  const Task& task(TaskIndex index) const {
    return program_.tasks[static_cast<std::size_t>(index)];
  }
  void issue(const Task& task) {
    host_ += task.dispatch.seconds();
    dispatch_ += task.dispatch.seconds();
  }
  void kernel(const EngineAction& action, TaskIndex index) {
    issue(task(index));
    if (on_compute(action)) compute_ = std::max(compute_, host_) + task(index).duration.seconds();
  }
  void on_host(TaskIndex index) {
    issue(task(index));
    host_ += task(index).duration.seconds();
  }
  // On a stream of NVMe.
  void queue(TaskIndex index, double& stream) {
    issue(task(index));
    stream = std::max(stream, host_) + task(index).duration.seconds();
  }
  void wait_for_compute() { host_ = std::max(host_, compute_); }

  const Plan& plan_;
  const EngineConfig& config_;
  Program program_;
  ProgramWriter writer_;
  TaskTable tasks_;
  std::vector<Bytes> reads_;
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

}  // namespace zeroplan
