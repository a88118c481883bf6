// The tasks of a program, made from what the cost functions say and interned: equal work is one
// task. With task_costs.hpp the only place of the simulator that asks a cost function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "model/cost/collective.hpp"
#include "model/cost/host_time.hpp"
#include "model/cost/kernel_time.hpp"
#include "model/engine/engine_action.hpp"
#include "model/engine/engine_config.hpp"
#include "model/graph/graph.hpp"
#include "model/plan/plan.hpp"
#include "simulator/program_writer.hpp"
#include "simulator/task_costs.hpp"

namespace zeroplan::simulator {

constexpr TaskIndex kNoTask = -1;

class TaskTable {
 public:
  // Both must outlive the table.
  TaskTable(const Plan& plan, ProgramWriter& writer);

  // An operation of a graph in a pass; recomputation costs what forward does.
  TaskIndex operation(const Block& block, const Operation& operation, Pass pass);

  // Kernels of the engine that read and write so many bytes in all, from Python. `cast`: elements
  // that change between fp32 and the model's type, which CPU ranks take time for.
  TaskIndex kernel(const char* name, Bytes traffic, std::int64_t kernels = 1, Elements cast = {});

  // message: the full tensor, of numbers of that type. With one rank the host alone has work.
  TaskIndex collective(Collective kind,
                       Bytes message,
                       const CollectiveGroup& group,
                       DType dtype = DType::fp32);

  // Between this GPU and the host, while so many GPUs of the node copy.
  TaskIndex copy(TaskKind direction, Bytes bytes, bool pinned, std::int64_t copying_gpus);

  // Of this GPU; all ranks of the node run the CPU's at the same time.
  // Of `kind` in lists of tensors or one kernel; tensors one by one cost as much as lists.
  TaskIndex gpu_optimizer(Elements parameters,
                          DType state,
                          OptimizerKind kind,
                          OptimizerImplementation implementation);
  TaskIndex cpu_optimizer(Elements parameters);
  TaskIndex muon_update(const MuonMatrices& matrices, NewtonSchulz method, DType gradient);
  TaskIndex muon_addition(Elements parameters, DType master);
  // One pass over host memory by each rank of the node.
  TaskIndex host_memory(const char* name, const HostPass& pass, Elements cast = {});
  TaskIndex nvme(bool reads, Bytes bytes);

  // What an action of a DeepSpeed engine takes (action_work.hpp): kernels, a pass of the CPU, an
  // optimizer's update, a copy or a transfer of the drive; kNoTask where it takes nothing.
  // Collectives are apart: their group decides.
  TaskIndex action(const EngineConfig& config, const EngineAction& action);
  void issue_action(const EngineConfig& config, const EngineAction& action, StreamId stream);

  // Issues what a new tensor costs on CPU ranks beside its contents: nothing where it is small.
  void touch(Bytes tensor);

  // The embedded runtime on CPU ranks: no launches, and nothing beside anything else.
  bool on_cpu_ranks() const { return cpu_.has_value(); }

  // Work of the dispatch thread alone.
  TaskIndex host(const char* name, Seconds seconds);

  const HostCosts& host_costs() const { return host_; }

 private:
  // Names are literals: where two files spell the same one, two equal tasks do no harm.
  struct Key {
    const char* name;
    std::int64_t a, b;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  template <typename MakeTask>
  TaskIndex intern(const char* name, std::int64_t a, std::int64_t b, MakeTask&& make);

  CostsOf costs() const { return {plan_.cluster, plan_.coefficients}; }

  const Plan& plan_;
  ProgramWriter& writer_;
  KernelTimes kernels_;
  HostCosts host_;
  std::optional<CpuRankTimes> cpu_;
  std::unordered_map<Key, TaskIndex, KeyHash> known_;
};

}  // namespace zeroplan::simulator
