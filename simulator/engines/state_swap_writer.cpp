#include "simulator/engines/state_swap_writer.hpp"

namespace zeroplan::simulator {

StateSwapWriter::StateSwapWriter(const EngineConfig& config,
                                 ProgramWriter& writer,
                                 TaskTable& tasks)
    : config_(config),
      writer_(writer),
      tasks_(tasks),
      read_(writer.add_stream("NVMe read")),
      written_(writer.add_stream("NVMe write")) {}

void StateSwapWriter::begin(const EngineActions& actions) {
  reads_.clear();
  next_read_ = 0;
  for (const EngineAction& action : actions.actions) {
    if (action.kind == ActionKind::swap_in) reads_.push_back(tasks_.action(config_, action));
  }
}

void StateSwapWriter::swap_in() {
  const bool ahead = config_.offload_optimizer.pipeline_read;
  if (!ahead || next_read_ == 0) read(next_read_);
  writer_.host_wait(read_events_[next_read_]);
  ++next_read_;
  if (ahead) read(next_read_);
}

void StateSwapWriter::read(std::size_t group) {
  if (group >= reads_.size()) return;
  if (read_events_.size() <= group) read_events_.push_back(writer_.new_event());
  writer_.issue(reads_[group], read_);
  writer_.record_event(read_events_[group], read_);
}

void StateSwapWriter::swap_out(const EngineAction& action) {
  const bool states = action.group >= 0;
  if (states && writes_) writer_.host_wait_stream(written_);
  tasks_.issue_action(config_, action, written_);
  if (action.host_waits) writer_.host_wait_stream(written_);
  writes_ = states && !action.host_waits;
}

}  // namespace zeroplan::simulator
