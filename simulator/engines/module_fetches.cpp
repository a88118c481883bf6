#include "simulator/engines/module_fetches.hpp"

#include <utility>

namespace zeroplan::simulator {

ModuleFetches::ModuleFetches(const Plan& plan,
                             const ModelGraph& graph,
                             const FetchModel& model,
                             const EngineConfig& config,
                             ProgramWriter& writer,
                             TaskTable& tasks,
                             Communicators& communicators,
                             StreamId gather,
                             OnModule ended)
    : writer_(writer),
      coordinator_(model, config),
      walk_(*plan.model, graph, !config.embedded && misses_ends_of_recomputed(config)),
      fetches_(plan, config, writer, tasks, communicators, gather, FetchWriter::Of::trained),
      ended_(std::move(ended)) {
  if (config.offload_parameter.device == OffloadDevice::nvme) {
    weights_written_ = writer.add_stream("NVMe write weights");
  }
}

void ModuleFetches::begin_micro_step() {
  coordinator_.begin_micro_step(log_);
  write();
}

void ModuleFetches::follow(const PassStep& pass, const Event& event) {
  walk_.follow(pass, event, [this](const ModuleStep& step) { fire(step); });
}

void ModuleFetches::fire(const ModuleStep& step) {
  if (step.enters) coordinator_.enter(step.module, step.pass, log_);
  if (!step.enters) coordinator_.exit(step.module, step.pass, log_);
  write();
  if (!step.enters && step.pass == FetchPass::backward) ended_(step.module);
}

void ModuleFetches::leave_forward() {
  walk_.leave(FetchPass::forward, [this](const ModuleStep& step) { fire(step); });
}

void ModuleFetches::begin_backward() {
  leave_forward();
  coordinator_.begin_backward(log_);
  write();
}

void ModuleFetches::leave_backward() {
  walk_.leave(FetchPass::backward, [this](const ModuleStep& step) { fire(step); });
}

void ModuleFetches::end_backward() {
  coordinator_.end_backward(log_);
  write();
}

void ModuleFetches::invalidate() {
  coordinator_.invalidate(log_);
  write();
}

void ModuleFetches::begin_optimizer_step() {
  coordinator_.begin_optimizer_step(log_);
  write();
}

void ModuleFetches::end_optimizer_step() {
  coordinator_.end_optimizer_step(log_);
  write();
  fetches_.drop_secondary_partitions();
}

void ModuleFetches::write_weights(TaskIndex task) {
  if (task != kNoTask) writer_.issue(task, weights_written_);
  writer_.host_wait_stream(weights_written_);
}

}  // namespace zeroplan::simulator
