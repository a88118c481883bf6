// Writes what one rank of a DeepSpeed engine does as a Program: initialisation, then whole
// optimizer steps. The policies are those of model/engine; here they get streams, blocks of memory
// and the order in which the host issues them.
//
// Flow: graph passes -> allocations, launches, module hooks, finished gradients
//         hooks      -> FetchCoordinator -> FetchWriter   -> gathers, copies, waits, releases
//         gradients  -> GradientReducer  -> EngineActions -> buckets, collectives, offload copies
//       optimizer_step -> EngineActions  -> scans, updates, gathers
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
#include <string>
#include <utility>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/fetch_coordinator.hpp"
#include "model/engine/gradient_buckets.hpp"
#include "model/plan/plan.hpp"
#include "model/predict/module_walk.hpp"
#include "model/predict/step_memory.hpp"
#include "model/predict/step_work.hpp"
#include "simulator/engines/beside_writer.hpp"
#include "simulator/engines/communicators.hpp"
#include "simulator/engines/fetch_writer.hpp"
#include "simulator/engines/graph_writers.hpp"
#include "simulator/engines/rank_program.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan {

// Does the host wait for the device before every micro-step? The throughput timer synchronizes it
// when a micro-step's forward pass begins and when its step() ends, unless the ds_config says
// otherwise (utils/timer.py ThroughputTimer.start, stop). Not in a pipeline.
bool waits_before_micro_steps(const Plan& plan);

class DeepSpeedWriter {
 public:
  // `config` is the rank's own; `varied`: graphs of micro-batches before the longest
  // (varied_lengths.hpp). All must outlive the writer.
  DeepSpeedWriter(const Plan& plan,
                  const StepWork& work,
                  std::span<const ModelGraph> varied,
                  const EngineConfig& config);

  // For the ranks that are not played (GradientReducer::keep_for_slowest_owner).
  void represent_peers() { reducer_.keep_for_slowest_owner(); }

  RankProgram write();
  // Its steady step alone, for what counts time and not memory: of the steps before it the last
  // micro-step is written, and not kept. Precondition: no pipeline, nothing beside.
  RankProgram write_steady_step();

 private:
  // A gradient of a leaf module that waits for its end.
  struct LeafGradient {
    std::int32_t parameter = -1;
    SlotIndex slot = -1;
  };

  // deepspeed_initialisation.cpp: before the first step
  void write_initialisation();
  void write_flattening(bool on_gpu);
  void write_fused_flattening();
  void write_bf16_flattening();
  void write_other_initialisation(bool zero3);
  std::vector<int> made_by_parameter(BufferName name) const;
  bool builds_partitioned() const;
  std::vector<SlotIndex> build_partitioned();
  void write_partitioned();
  void gather_for_hooks();
  std::vector<std::vector<SlotIndex>> load_apart();
  void hold_kept(Bytes registered);
  bool is_open(std::size_t buffer, int group) const;  // made at the start, and not yet
  void make_weights(int group);
  void make_masters(int group);
  SlotIndex hold(Bytes bytes, MemoryCategory category);
  void pass_through(Bytes bytes, MemoryCategory category);
  void release_all(const std::vector<SlotIndex>& slots);

  // deepspeed_writer.cpp: the run, its buffers, the passes
  bool is_followed(const EngineBuffer& buffer) const;
  StepSections write_step(bool first, bool varies = false);
  Section write_micro_step(int micro_step);
  Section write_pipeline();
  void begin_backward(int micro_step);
  void write_passes_beside(PassMoment moment);
  void begin_step_beside();
  Section write_optimizer_step(bool first);
  void write_pass(const PassStep& pass);
  void allocate_buffers(BufferLifetime lifetime);
  void release_buffers(BufferLifetime lifetime);
  void begin_backward_buffers(int micro_step);
  void allocate_backward_buffers(int micro_step);
  void make_owned_storage();
  void allocate_buffer(std::size_t i);
  void make_buckets();
  void end_backward_buffers(int micro_step);
  void module_step(const ModuleStep& step);

  // deepspeed_gradients.cpp: from a finished gradient to the engine's buckets
  void take_gradient(std::int32_t parameter, SlotIndex slot);
  void take_gradients_of_leaf();
  void reduce_gradient(std::int32_t parameter, SlotIndex slot);
  void write_gradient_hook();
  void accumulate_gradient(const EngineAction& action);
  void join_bucket(const EngineAction& action);
  void finish_backward(int micro_step);
  void release_waiting_gradients();
  void drop_gradients(std::span<const int> parameters);

  // deepspeed_actions.cpp: EngineActions
  void write_actions(const EngineActions& actions);
  void write_action(const EngineActions& actions, const EngineAction& action);
  void issue(const EngineAction& action);  // its task, where it takes something
  void write_cast(const EngineAction& action);
  void write_collective(const EngineAction& action);
  void write_copy(const EngineAction& action);
  void prepare_group(int group);
  SlotIndex free_slot();  // of what has gone, or a new one
  void release_slot(SlotIndex slot);
  void write_update(const EngineAction& action);
  void write_overflow_scan(const EngineAction& action, Bytes scratch);
  void write_swap(const EngineAction& action);
  void read_states(std::size_t group);
  void transient(Bytes bytes, MemoryCategory category, StreamId stream, TaskIndex task);
  void release_casts(int count);
  void release_transients();
  void release_partition();
  [[nodiscard]] bool keeps_reduced_bucket() const;
  SlotIndex take_last_transient();
  void transient_for_a_kernel(Bytes bytes, StreamId stream, TaskIndex task);
  void write_host_update(const EngineAction& action);
  void host_blocks_on(StreamId stream);

  void write_fetches() { fetches_->write(log_); }
  StreamId stream_of(EngineStream stream) const;

  const Plan& plan_;
  const StepWork& work_;
  EngineConfig config_;
  RankProgram rank_;
  ProgramWriter writer_;
  TaskTable tasks_;
  GraphWriters graphs_;
  GraphWriter& graph() { return graphs_.current(); }
  const GraphWriter& graph() const { return graphs_.current(); }
  Communicators communicators_;
  std::optional<BesideWriter> beside_;  // other models of the process

  StreamId reduce_ = kComputeStream;
  StreamId gather_ = kComputeStream;
  StreamId cpu_ = -1;
  // One for each of DeepSpeed's I/O handles: transfers of different ones share the drive.
  struct NvmeStreams {
    StreamId read = -1, written = -1;  // states and gradients
    StreamId weights_written = -1;     // FetchWriter reads them
  };
  NvmeStreams nvme_;

  std::vector<EngineBuffer> buffers_;
  Elements elements_;  // of all parameters
  std::vector<SlotIndex> buffer_slots_;
  std::vector<bool> buffer_held_;
  bool keeps_gradients_ = false;  // some are is_kept_gradient()

  // Gradients.
  GradientReducer reducer_;
  EngineActions actions_;
  int micro_step_ = 0;
  int groups_ = 0;                        // of the optimizer, in stages 1 and 2
  bool makes_states_ = false;             // in the first step
  SlotIndex at_hand_ = -1;                // the gradient that autograd has just made
  bool buffers_ready_ = false;            // of this backward
  bool owned_ready_ = false;              // so are those that its flushes make
  std::vector<SlotIndex> partial_slots_;  // by parameter: tied weights' sum so far
  std::vector<SlotIndex> waiting_slots_;  // by parameter: .grad or grad_accum
  std::vector<bool> waits_;               // by parameter: that slot is held
  std::vector<SlotIndex> outside_slots_;  // by parameter: outside the bucket's buffer
  // Stage 3: gradients of a leaf module wait for the end of its backward pass.
  std::vector<ModuleIndex> leaf_of_;   // by parameter: its leaf module, -1: none; empty: no leaves
  std::vector<LeafGradient> of_leaf_;  // of the leaf whose backward runs
  std::vector<SlotIndex> transients_;  // of the flush or group at hand
  std::vector<SlotIndex> casts_;       // of gradients one by one, until they are flattened
  // Stage 3 with offload, of the parameter at hand (stage3.py partition_grads): its partition back
  // on the GPU, and that in the master's dtype.
  std::optional<SlotIndex> fetched_partition_;
  std::optional<SlotIndex> partition_cast_;
  std::vector<SlotIndex> free_slots_;
  QueueIndex reduce_queue_ = -1;

  // Stage 3.
  std::optional<FetchCoordinator> coordinator_;
  std::optional<ModuleWalk> walk_;
  FetchLog log_;
  std::optional<FetchWriter> fetches_;
  bool backward_began_ = false;

  // NVMe.
  std::vector<TaskIndex> reads_;  // of the step, in the order of its sub-groups
  std::size_t next_read_ = 0;
  std::vector<EventIndex> read_events_;
  bool writes_ = false;            // states, and nobody has waited for them
  std::vector<SlotIndex> handed_;  // fp32 gradients of a bucket, until the swapper has them
};

}  // namespace zeroplan
