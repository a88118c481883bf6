// The buffers of a DeepSpeed engine on the GPU, one slot each: made and released when their
// lifetimes say.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/engine_config.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

// A buffer of FSDP or DDP that is there from now on, in a slot of its own; `index`: its place in
// fsdp_buffers() or ddp_buffers().
void hold_buffer(ProgramWriter& writer, const EngineBuffer& buffer, std::size_t index);

class BufferSlots {
 public:
  // All must outlive it. `reduce`: the stream of what a flush makes.
  BufferSlots(const EngineConfig& config,
              std::span<const EngineParameter> parameters,
              ProgramWriter& writer,
              TaskTable& tasks,
              StreamId reduce);

  const std::vector<EngineBuffer>& buffers() const { return buffers_; }
  // Are gradients zeroed and kept between steps?
  bool keeps_gradients() const { return keeps_gradients_; }

  // One buffer, or all of a lifetime that are not there yet and not followed one by one: waiting
  // gradients, persistent weights and hpZ's secondary partitions are.
  void allocate(std::size_t buffer);
  void allocate(BufferLifetime lifetime);
  void release(BufferLifetime lifetime);
  // Made at the start as one, and not yet; of `group` (-1: of any).
  bool is_open(std::size_t buffer, int group) const;

  // A micro-step. Its backward pass makes buffers when the first gradient is complete, except for
  // buckets that are made before; what the rank owns when the first bucket has some of it.
  void begin_micro_step(int micro_step);
  void make_buckets();
  void begin_backward();
  bool owned_ready() const { return owned_ready_; }
  void make_owned();
  // Muon's momentum, where it is not there yet, and its next update.
  void make_momentum();
  void make_update();
  void end_backward();

  // The optimizer's step. The first one makes states, group by group as each is stepped.
  void begin_step(bool first);
  void begin_group(int group);
  void end_groups();
  // What the step consumes: gradients.
  void release_consumed();

 private:
  bool is_followed(const EngineBuffer& buffer) const;
  void allocate_of_backward();
  void release_updates(int group);
  void hand_over();

  const EngineConfig& config_;
  ProgramWriter& writer_;
  TaskTable& tasks_;
  const StreamId reduce_;
  std::vector<EngineBuffer> buffers_;
  std::vector<HandedBuffer> handed_;
  Elements elements_;  // of all parameters
  SlotIndex first_slot_ = -1;
  std::vector<bool> held_;
  bool keeps_gradients_ = false;  // some are is_kept_gradient()

  int micro_step_ = 0;
  bool backward_ready_ = false;  // buffers of this micro-step's backward pass
  bool owned_ready_ = false;     // so are those that its flushes make
  std::size_t next_update_ = 0;  // of buffers_, from here on
  bool makes_states_ = false;    // the step at hand is the first
};

}  // namespace zeroplan::simulator
