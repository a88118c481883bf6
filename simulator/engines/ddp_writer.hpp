// Writes what one rank of PyTorch's DistributedDataParallel does as a Program. Which gradients
// share a bucket is model/engine/ddp.hpp's; here they get streams and blocks of memory.
//
// Streams: compute; NCCL's. Sources: torch 2.6 torch/nn/parallel/distributed.py,
// torch/csrc/distributed/c10d/reducer.cpp, aten/src/ATen/autocast_mode.cpp (cached_cast).
#pragma once

#include <span>
#include <vector>

#include "model/engine/ddp.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "simulator/engines/beside_writer.hpp"
#include "simulator/engines/buffer_slots.hpp"
#include "simulator/engines/communicators.hpp"
#include "simulator/engines/graph_writers.hpp"
#include "simulator/engines/rank_program.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class DdpWriter {
 public:
  // `varied`: graphs of micro-batches before the longest (varied_lengths.hpp). All must outlive the
  // writer.
  DdpWriter(const Plan& plan, const ModelGraph& graph, const VariedGraphs& varied);

  RankProgram write();

 private:
  static constexpr MemoryCategory kParameters = MemoryCategory::parameters;
  static constexpr MemoryCategory kGradients = MemoryCategory::gradients;
  static constexpr MemoryCategory kTemporaries = MemoryCategory::temporaries;

  struct Bucket {
    DdpBucket content;
    SlotIndex slot = -1;
    EventIndex reduced = -1;
    std::size_t missing = 0;  // gradients of this backward pass
  };
  // Of one parameter.
  struct ParameterSlots {
    SlotIndex gradient = -1;  // .grad
    SlotIndex cast = -1;      // autocast's copy of the weight
    bool holds_gradient = false;
    int cast_users = 0;  // passes that still need the copy
    std::size_t bucket = 0;
  };

  void write_initialisation();
  struct State {
    Bytes bytes;
    DType dtype = DType::fp32;
  };
  std::vector<State> load_module();
  void synchronize(const std::vector<State>& states);
  void make_buckets(const DdpConfig& config, std::span<const std::int32_t> gradient_order);
  void allocate_buffers(BufferLifetime lifetime);
  StepSections write_step(bool first);
  Section write_micro_step(int micro_step, bool rebuilds);
  Section write_optimizer_step(bool first);
  void write_pass(const PassStep& pass);
  void cast_weights(const PassStep& pass);
  void drop_casts(const BlockInstance& block);
  void drop_casts_of_checkpointed();
  void drop_cast(ParameterSlots& slots);
  void drop_gradients();
  void take_gradient(std::int32_t parameter, SlotIndex slot);
  void fill_bucket(std::int32_t parameter);
  void launch_full_buckets();
  void finish_buckets();
  void write_optimizer();
  const EngineParameter& parameter(std::int32_t index) const {
    return plan_.engine_parameters[static_cast<std::size_t>(index)];
  }

  const Plan& plan_;
  const DdpConfig& config_;
  const ModelGraph& model_graph_;
  std::vector<EngineBuffer> buffers_;
  RankProgram rank_;
  ProgramWriter writer_;
  TaskTable tasks_;
  GraphWriters graphs_;
  Communicators communicators_;
  std::optional<BesideWriter> beside_;  // other models of the process
  CollectiveGroup group_;
  std::vector<Bucket> buckets_;
  std::vector<ParameterSlots> slots_;  // by parameter
  DType trained_;                      // of gradients, buckets and the update
  std::size_t next_bucket_ = 0;        // all before it are under way
  bool reduces_ = false;               // the last micro-step of a window
  bool backward_began_ = false;
  bool forward_returned_ = false;      // before the loss: autocast has ended
  bool drops_held_gradients_ = false;  // when the backward pass begins
};

}  // namespace zeroplan::simulator
