// The weights of a model that is not trained, as one rank holds them between and during forward
// passes without gradients: whole, as partitions of ZeRO-3 that its own coordinator gathers, or as
// shards of FSDP.
//
// Sources: DeepSpeed 0.19.6 runtime/engine.py (an engine without an optimizer:
// _configure_zero_optimizer makes a DeepSpeedZeRoOffload), zero/parameter_offload.py;
// fetch_schedule.hpp for the gathers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/engine/fetch_coordinator.hpp"
#include "model/plan/plan.hpp"
#include "model/step/module_walk.hpp"
#include "simulator/engines/communicators.hpp"
#include "simulator/engines/fetch_writer.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class FrozenWeights {
 public:
  // All must outlive it. `plan` is the model's own.
  FrozenWeights(const Plan& plan,
                const ModelGraph& graph,
                ProgramWriter& writer,
                TaskTable& tasks,
                Communicators& communicators);

  // What stays on the GPU, tensor by tensor.
  void hold();

  // Around a forward pass over the model, and at each event of its passes over blocks.
  void begin_forward();
  void begin_block(const PassStep& pass);
  void follow(const PassStep& pass, const Event& event);
  void end_block();
  void end_forward();

 private:
  // --- ZeRO-3
  void module_step(const ModuleStep& step);
  // --- FSDP
  void gather_unit(std::size_t unit);

  Bytes stored(std::size_t parameter) const;

  const Plan& plan_;
  const ModelGraph& graph_;
  ProgramWriter& writer_;
  TaskTable& tasks_;
  Communicators& communicators_;

  std::optional<FetchCoordinator> coordinator_;
  std::optional<ModuleWalk> walk_;
  FetchLog log_;
  std::optional<FetchWriter> fetches_;

  std::vector<FsdpUnit> units_;
  std::vector<SlotIndex> unit_slots_;
  std::vector<bool> unit_held_;
  std::vector<std::size_t> gathered_;  // blocks, the oldest first
};

}  // namespace zeroplan::simulator
