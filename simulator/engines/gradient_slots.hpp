// Where gradients are between autograd and the engine's buckets: one slot a parameter for what
// autograd made, and one for what waits until the window's boundary.
//
// What happens to a gradient when is GradientReducer's to say; here its memory follows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class GradientSlots {
 public:
  // All must outlive it. `reduce`: the stream that reads gradients outside of a bucket's buffer.
  GradientSlots(const EngineConfig& config,
                std::size_t parameters,
                ProgramWriter& writer,
                TaskTable& tasks,
                StreamId reduce);

  // Autograd has finished a gradient; the slot is the engine's from now on.
  void take(std::int32_t parameter, SlotIndex slot);

  // accumulate_gradient
  void accumulate(const EngineAction& action);
  // insert_gradient, list_gradient, keep_outside; the copy runs on `stream`.
  void join_bucket(const EngineAction& action, StreamId stream);
  // drop_gradients
  void drop(std::span<const int> parameters);
  // release_gradients, and zero_grad()
  void release_waiting();

 private:
  SlotIndex waiting_slot(std::size_t parameter) const {
    return first_waiting_ + static_cast<SlotIndex>(parameter);
  }

  const EngineConfig& config_;
  ProgramWriter& writer_;
  TaskTable& tasks_;
  const StreamId reduce_;
  SlotIndex first_waiting_;       // .grad or grad_accum of the first parameter
  std::vector<bool> waits_;       // by parameter: that slot is held
  std::vector<SlotIndex> slots_;  // by parameter: what autograd made, or what stays outside
};

}  // namespace zeroplan::simulator
