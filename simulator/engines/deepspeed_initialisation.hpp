// Loading and initialisation under DeepSpeed, tensor by tensor where what is left in the
// allocator's cache depends on it.
//
// Sources: DeepSpeed 0.19.6, the files named at each function.
#pragma once

#include <vector>

#include "model/engine/buffers.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "simulator/engines/buffer_slots.hpp"
#include "simulator/engines/module_fetches.hpp"
#include "simulator/program_writer.hpp"

namespace zeroplan::simulator {

class DeepSpeedInitialisation {
 public:
  // All must outlive it. `fetches`: of stage 3, else null.
  DeepSpeedInitialisation(const Plan& plan,
                          const ModelGraph& graph,
                          const EngineConfig& config,
                          ProgramWriter& writer,
                          BufferSlots& buffers,
                          ModuleFetches* fetches);

  void write();

 private:
  void write_flattening(bool on_gpu);
  void write_fused_flattening();
  void write_bf16_flattening();
  void write_other(bool zero3);
  std::vector<int> made_by_parameter(BufferName name) const;
  bool builds_partitioned() const;
  std::vector<SlotIndex> build_partitioned();
  void write_partitioned();
  void gather_for_hooks();
  std::vector<std::vector<SlotIndex>> load_apart();
  void hold_kept(Bytes registered);
  void make_weights(int group);
  void make_masters(int group);
  SlotIndex hold(Bytes bytes, Purpose purpose);
  void pass_through(Bytes bytes, Purpose purpose);
  void release_all(const std::vector<SlotIndex>& slots);

  const Plan& plan_;
  const ModelGraph& model_graph_;
  const EngineConfig& config_;
  ProgramWriter& writer_;
  BufferSlots& slots_;
  const std::vector<EngineBuffer>& buffers_;
  ModuleFetches* fetches_;
};

}  // namespace zeroplan::simulator
