// The optimizer's states on NVMe as instructions: reads before a sub-group's update, writes behind
// it, and writes of gradients.
//
// Reads are one sub-group ahead where pipeline_read says so, begun once the one at hand is there;
// states are written once those before them are on the drive (DeepSpeed 0.19.6
// runtime/swap_tensor/pipelined_optimizer_swapper.py swap_in_optimizer_state,
// swap_out_optimizer_state).
#pragma once

#include <cstddef>
#include <vector>

#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class StateSwapWriter {
 public:
  // All must outlive it. Its streams are those of DeepSpeed's I/O handles for reads and writes:
  // transfers of different ones share the drive.
  StateSwapWriter(const EngineConfig& config, ProgramWriter& writer, TaskTable& tasks);

  // The actions that follow: what they read in turn.
  void begin(const EngineActions& actions);
  void swap_in();
  void swap_out(const EngineAction& action);

 private:
  void read(std::size_t group);

  const EngineConfig& config_;
  ProgramWriter& writer_;
  TaskTable& tasks_;
  StreamId read_, written_;
  std::vector<TaskIndex> reads_;  // of the step, in the order of its sub-groups
  std::size_t next_read_ = 0;
  std::vector<EventIndex> read_events_;
  bool writes_ = false;  // states, and nobody has waited for them
};

}  // namespace zeroplan::simulator
