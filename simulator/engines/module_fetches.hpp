// Stage 3's hooks on modules as instructions: the passes of the trained model go through the
// coordinator, and what it fetches and releases is written.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "model/engine/fetch_coordinator.hpp"
#include "model/step/module_walk.hpp"
#include "simulator/engines/fetch_writer.hpp"

namespace zeroplan::simulator {

class ModuleFetches {
 public:
  using OnModule = std::function<void(ModuleIndex)>;

  // All must outlive it. `gather`: the stream of overlap_comm, else the compute stream.
  // ended(module): its backward pass is over.
  ModuleFetches(const Plan& plan,
                const ModelGraph& graph,
                const FetchModel& model,
                const EngineConfig& config,
                ProgramWriter& writer,
                TaskTable& tasks,
                Communicators& communicators,
                StreamId gather,
                OnModule ended);

  void make_secondary_partitions(std::span<const EngineBuffer> buffers) {
    fetches_.make_secondary_partitions(buffers);
  }

  void begin_micro_step();
  void begin_pass(std::optional<Pass> pass) { fetches_.begin_pass(pass); }
  void follow(const PassStep& pass, const Event& event);
  // A hook that fires outside of the trained model's own passes.
  void fire(const ModuleStep& step);
  // What is left of the forward pass ends.
  void leave_forward();
  void begin_backward();
  void leave_backward();
  // The engine's part, behind the last reduction (runtime/engine.py _backward_epilogue).
  void end_backward();
  // The trace is given up.
  void invalidate();
  void begin_optimizer_step();
  void end_optimizer_step();

  // Autograd's nodes have run that kept weights of linears.
  void release_saved_weights(const BlockInstance& instance) {
    fetches_.release_saved_weights(instance);
  }
  void release_saved_weight(std::int32_t parameter) { fetches_.release_saved_weight(parameter); }
  void end_graph() { fetches_.end_graph(); }

  // A sub-group's new weights go to the drive (swap_out_weights); kNoTask: nothing does.
  void write_weights(TaskIndex task);

 private:
  void write() { fetches_.write(log_); }

  ProgramWriter& writer_;
  FetchCoordinator coordinator_;
  ModuleWalk walk_;
  FetchLog log_;
  FetchWriter fetches_;
  OnModule ended_;
  StreamId weights_written_ = -1;  // DeepSpeed's I/O handle of these; FetchWriter has another
};

}  // namespace zeroplan::simulator
