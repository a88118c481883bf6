// Writes what one rank of PyTorch's FullyShardedDataParallel does as a Program. The policy is that
// of model/engine/fsdp.hpp; here it gets streams, blocks of memory and the limit on gathers.
//
// Streams: compute; prepare (casts, pre-unshard); unshard (gathers); reduce (post-backward);
// NCCL's. Sources:
// torch 2.6 torch/distributed/fsdp/_runtime_utils.py, _flat_param.py, _limiter_utils.py.
#pragma once

#include <span>
#include <vector>

#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "model/step/fsdp_work.hpp"
#include "simulator/engines/beside_writer.hpp"
#include "simulator/engines/buffer_slots.hpp"
#include "simulator/engines/communicators.hpp"
#include "simulator/engines/graph_writers.hpp"
#include "simulator/engines/rank_program.hpp"
#include "simulator/task_table.hpp"

namespace zeroplan::simulator {

class FsdpWriter {
 public:
  // `varied`: graphs of micro-batches before the longest (varied_lengths.hpp). All must outlive the
  // writer.
  FsdpWriter(const Plan& plan, const ModelGraph& graph, const VariedGraphs& varied);

  RankProgram write();

 private:
  static constexpr MemoryCategory kParameters = MemoryCategory::parameters;
  static constexpr MemoryCategory kGradients = MemoryCategory::gradients;
  static constexpr MemoryCategory kCommunication = MemoryCategory::communication_buffers;
  static constexpr MemoryCategory kTemporaries = MemoryCategory::temporaries;

  struct UnitSlots {
    SlotIndex gathered = -1;
    SlotIndex shard = -1;  // on the GPU, where it is offloaded, until it is gathered
    SlotIndex cast = -1;   // of the shard, where it is gathered in another dtype
    SlotIndex flat = -1;   // gradient of the whole unit
    SlotIndex input = -1;  // of the reduction, cast and padded
    SlotIndex output = -1;
    SlotIndex gradient = -1;  // of the shard, or of the whole unit while nothing is reduced
    EventIndex ready = -1;    // the gathered unit is there
    bool holds_gathered = false;
    bool holds_flat = false;
    bool holds_gradient = false;
    std::vector<SlotIndex> views;  // gradients of its parameters
    // fully_shard: a tensor for each parameter.
    std::vector<SlotIndex> copies;     // gathered, copied out of the message
    std::vector<SlotIndex> gradients;  // not yet reduced
    std::vector<bool> holds_gradients;
    EventIndex copied = -1, reduced = -1;
    bool holds_copies = false;
  };

  // _limiter_utils.py _FreeEventQueue: two gathered units may be on their way to be freed; before a
  // third gather the host waits for the older one.
  static constexpr std::int64_t kGathersAhead = 1;

  // A matrix that is a unit of its own; no slot: the module is none.
  struct Adapter {
    Elements numel;
    SlotIndex slot = -1;
    SlotIndex cast = -1;  // of the shard, where it is gathered in another dtype
    bool holds_gathered = false;
  };

  void write_initialisation();
  void load_whole();
  SlotIndex bring(int parameter);
  void wrap_unit(int unit);
  void measure_gathered();
  StepSections write_step(bool first);
  Section write_micro_step(int micro_step);
  Section write_optimizer_step(bool first);
  void write_gpu_optimizer();
  void unshard(const FsdpEvent& event);
  void reshard(int unit);
  void compute(const FsdpEvent& event);
  void join_views(int unit);
  void place_gradient_views(std::vector<int>& joined);  // of these units, which leave the list
  void reduce(const FsdpEvent& event);
  void keep_shard(int unit);
  // Adapters that are units of their own (fsdp_writer_adapters.cpp).
  bool gathers_adapters_apart() const;
  void find_adapters();
  void visit_adapter(int unit, const PassStep& pass, const Event& module);
  void gather_adapter(const FsdpUnit& unit, Adapter& adapter);
  void free_adapter(Adapter& adapter);
  std::vector<Adapter>& adapters_of(const PassStep& pass);
  // fully_shard (fsdp_writer_parameters.cpp).
  bool by_parameter() const { return config_.version == 2; }
  void make_parameter_slots();
  void wrap_parameters(int unit);
  void gather_parameters(const FsdpEvent& event);
  void copy_out(int unit, bool forward);
  void reshard_parameters(int unit);
  void keep_gradient(std::int32_t parameter, SlotIndex slot);
  void reduce_parameters(const FsdpEvent& event);
  void drop_gathered();
  void drop_sent();
  void drop_gradients();
  TaskIndex host_copy(TaskKind direction, Bytes bytes);  // pinned memory
  void allocate_buffers(BufferLifetime lifetime);
  const FsdpUnit& unit_of(int unit) const { return fsdp_.units[static_cast<std::size_t>(unit)]; }
  UnitSlots& slots_of(int unit) { return slots_[static_cast<std::size_t>(unit)]; }

  const Plan& plan_;
  const FsdpConfig& config_;
  const ModelGraph& model_graph_;
  FsdpWork fsdp_;
  std::vector<EngineBuffer> buffers_;
  std::vector<SlotIndex> loaded_;  // by parameter, until its unit is made; empty: none is there
  RankProgram rank_;
  ProgramWriter writer_;
  TaskTable tasks_;
  GraphWriters graphs_;
  Communicators communicators_;
  std::optional<BesideWriter> beside_;  // other models of the process
  StreamId unshard_ = kComputeStream;
  StreamId prepare_ = kComputeStream;  // what is gathered is cast, or brought from the host
  StreamId reduce_ = kComputeStream;
  QueueIndex free_events_ = -1;
  // fully_shard: whose message of a gather in forward, and of a reduction, is still alive.
  int gathered_last_ = -1, reduced_last_ = -1;
  SlotIndex message_ = -1;
  std::vector<UnitSlots> slots_;
  std::vector<bool> buffer_held_;
  std::size_t next_pass_ = 0;
  bool backward_began_ = false;
  bool drops_held_gradients_ = false;           // when the backward pass begins
  bool ran_forward_ = false;                    // and so have the passes of other models behind it
  std::vector<std::vector<Adapter>> adapters_;  // by block and module
  EventIndex adapter_ready_ = -1;
};

}  // namespace zeroplan::simulator
