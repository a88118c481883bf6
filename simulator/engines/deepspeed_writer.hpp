// Writes what one rank of a DeepSpeed engine does as a Program: initialisation, then whole
// optimizer steps. The policies are those of model/engine; here they get streams, blocks of memory
// and the order in which the host issues them.
//
// Flow: graph passes -> allocations, launches, module hooks, finished gradients
//         hooks      -> ModuleFetches    -> gathers, copies, waits, releases
//         gradients  -> GradientReducer  -> EngineActions -> buckets, collectives, offload copies
//       optimizer_step -> EngineActions  -> scans, updates, gathers
// An action's memory is that of GradientSlots, BufferSlots and TransientSlots; its NVMe transfers
// are StateSwapWriter's.
//
// Streams: compute; reduce and gather where overlap_comm is on; one for each NCCL communicator
// (collectives of one group run one after the other, whoever issued them); the CPU optimizer and
// the NVMe queue as streams of their own.
//
// Sources: DeepSpeed 0.19.6, the files named in model/engine; torch/csrc/distributed/c10d/
// ProcessGroupNCCL.cpp for the streams of collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "model/engine/gradient_buckets.hpp"
#include "model/engine/leaf_gradients.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "simulator/engines/beside_writer.hpp"
#include "simulator/engines/buffer_slots.hpp"
#include "simulator/engines/communicators.hpp"
#include "simulator/engines/gradient_slots.hpp"
#include "simulator/engines/graph_writers.hpp"
#include "simulator/engines/module_fetches.hpp"
#include "simulator/engines/rank_program.hpp"
#include "simulator/engines/state_swap_writer.hpp"
#include "simulator/engines/transient_slots.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

// Does the host wait for the device before every micro-step? The throughput timer synchronizes it
// when a micro-step's forward pass begins and when its step() ends, unless the ds_config says
// otherwise (utils/timer.py ThroughputTimer.start, stop). Not in a pipeline.
bool waits_before_micro_steps(const Plan& plan);

class DeepSpeedWriter {
 public:
  // `config` is the rank's own; `varied`: graphs of micro-batches before the longest
  // (varied_lengths.hpp). All must outlive the writer.
  DeepSpeedWriter(const Plan& plan,
                  const ModelGraph& graph,
                  const VariedGraphs& varied,
                  const EngineConfig& config);

  // For the ranks that are not played (GradientReducer::keep_for_slowest_owner).
  void represent_peers() { reducer_.keep_for_slowest_owner(); }

  RankProgram write();
  // Its steady step alone, for what counts time and not memory: of the steps before it the last
  // micro-step is written, and not kept. Precondition: no pipeline, nothing beside.
  RankProgram write_steady_step();

 private:
  struct Streams {
    StreamId reduce = kComputeStream;
    StreamId gather = kComputeStream;
    StreamId cpu = -1;  // the CPU's optimizer, from its first work on
  };

  // deepspeed_writer.cpp: the run, its passes
  Streams make_streams();
  void write_initialisation();
  StepSections write_step(bool first);
  Section write_micro_step(int micro_step);
  Section write_pipeline();
  void begin_backward(int micro_step);
  void write_passes_beside(PassMoment moment);
  void begin_step_beside();
  Section write_optimizer_step(bool first);
  void write_pass(const PassStep& pass);
  void take_gradient(std::int32_t parameter, SlotIndex slot);
  void reduce_gradient(std::int32_t parameter);
  void finish_backward();
  GraphWriter& graph() { return graphs_.current(); }
  const GraphWriter& graph() const { return graphs_.current(); }

  // deepspeed_actions.cpp: EngineActions
  void write_actions(const EngineActions& actions);
  void write_action(const EngineActions& actions, const EngineAction& action);
  void issue(const EngineAction& action);  // its task, where it takes something
  TransientSlots::Made made_by(const EngineAction& action);
  void write_cast(const EngineAction& action);
  void write_collective(const EngineAction& action);
  void write_copy(const EngineAction& action);
  void write_update(const EngineAction& action);
  void write_host_update(const EngineAction& action);
  void write_overflow_scan(const EngineAction& action, Bytes scratch);
  void begin_group(int group);
  [[nodiscard]] bool keeps_reduced_bucket() const;
  StreamId stream_of(EngineStream stream) const;

  const Plan& plan_;
  const ModelGraph& model_graph_;
  EngineConfig config_;
  RankProgram rank_;
  ProgramWriter writer_;
  TaskTable tasks_;
  GraphWriters graphs_;
  Communicators communicators_;
  Streams streams_;
  std::optional<BesideWriter> beside_;  // other models of the process

  GradientReducer reducer_;
  EngineActions actions_;
  GradientSlots gradients_;
  LeafGradients leaves_;
  BufferSlots buffers_;
  TransientSlots transients_;
  QueueIndex reduce_queue_ = -1;
  std::optional<StateSwapWriter> swap_;   // the optimizer's states on NVMe
  std::optional<ModuleFetches> fetches_;  // stage 3
  bool backward_began_ = false;
};

}  // namespace zeroplan::simulator
