// Stage 3's gathers as instructions: a FetchLog in, allocations, collectives, copies and waits out.
// The trained model has one, and each frozen model beside it that is sharded.
//
// Sources: those of model/engine/fetch_schedule.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/engine/buffers.hpp"
#include "model/engine/fetch_schedule.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/step/kept_weights.hpp"
#include "model/step/outside_passes.hpp"
#include "simulator/engines/communicators.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class FetchWriter {
 public:
  // Whose weights are gathered. Slots of the trained model's say which parameter they hold
  // (SlotKind), for `explain`.
  enum class Of : std::uint8_t { trained, beside };

  // All must outlive it. `plan` is the model's own, `config` the rank's; `gather`: the stream of
  // overlap_comm, else the compute stream.
  FetchWriter(const Plan& plan,
              const EngineConfig& config,
              ProgramWriter& writer,
              TaskTable& tasks,
              Communicators& communicators,
              StreamId gather,
              Of of);

  // Writes what the log has, and clears it.
  void write(FetchLog& log);

  // hpZ. Initialisation gathers every parameter and releases it, which makes its secondary
  // partition.
  void make_secondary_partitions(std::span<const EngineBuffer> buffers);
  void drop_secondary_partitions();

  // The pass that runs: some keep gathered weights (KeptWeight). None: a pass without gradients.
  void begin_pass(std::optional<Pass> pass) { pass_ = pass; }
  // Their nodes have run.
  void release_saved_weights(const BlockInstance& instance);
  void release_saved_weight(std::int32_t parameter);
  // The loss goes, and its graph.
  void end_graph();

 private:
  // The flat buffer of a gather of several parameters.
  struct FlatBuffer {
    SlotIndex slot = -1;
    Elements elements;
  };
  struct OwnPart {
    ParameterIndex parameter = -1;
    SlotIndex slot = -1;
  };

  std::vector<SlotIndex> slots_of_parameters(SlotKind kind, Of of);
  void write_event(const FetchLog& log, const FetchEvent& event);
  void write_gather(const FetchLog& log, const FetchEvent& event);
  void drop_bucket(const FetchEvent& event);
  void agree(const FetchEvent& event);
  void hold(std::size_t parameter, Bytes bytes, StreamId stream);
  std::vector<SlotIndex> bring_own_parts(const FetchLog& log, const FetchEvent& event);
  void keep_own_part(ParameterIndex parameter, SlotIndex part, StreamId nccl);
  void release_own_part(ParameterIndex parameter);
  void release_own_parts();
  void keep_secondary(const FetchEvent& event);
  void read_weights(const FetchLog& log, const FetchEvent& event);
  void release_parameter(std::int32_t parameter);
  void release_kept(SlotIndex slot);
  SlotIndex free_slot();  // of what has gone, or a new one
  void release_slot(SlotIndex slot);
  StreamId stream_of(FetchStream stream) const {
    return stream == FetchStream::gather ? gather_ : kComputeStream;
  }

  const Plan& plan_;
  const EngineConfig& config_;
  ProgramWriter& writer_;
  TaskTable& tasks_;
  Communicators& communicators_;
  StreamId gather_ = kComputeStream;
  Purpose purpose_ = Purpose::of_slot;  // of weights that are gathered
  std::optional<Pass> pass_;

  // By parameter.
  std::vector<SlotIndex> parameter_slots_;
  std::vector<bool> parameter_held_;
  std::vector<EventIndex> parameter_events_;  // its gather is done
  std::vector<SlotIndex> secondary_slots_;
  std::vector<bool> secondary_held_;
  std::vector<KeptWeight> kept_;  // empty: none
  std::vector<SlotIndex> saved_slots_;
  std::vector<bool> saved_held_;
  std::vector<bool> saved_with_graph_;  // of those held: not until its node has run alone

  std::vector<FlatBuffer> flat_buffers_;  // alive, the oldest first
  std::vector<OwnPart> own_parts_;        // of offloaded weights, whose gather is under way
  std::vector<SlotIndex> free_slots_;
  QueueIndex fetch_queue_ = -1;

  // Weights on NVMe: their I/O handle; by parameter, what each gather reads.
  StreamId weights_read_ = -1;
  std::vector<Elements> weight_reads_;
};

}  // namespace zeroplan::simulator
