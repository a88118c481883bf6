#include "simulator/engines/frozen_weights.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "model/engine/partition.hpp"

namespace zeroplan::simulator {
namespace {

// The unit of a block's parameters; the root's is the first.
std::size_t unit_of(const std::vector<FsdpUnit>& units, int block) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].block == block) return u;
  }
  return 0;
}

}  // namespace

FrozenWeights::FrozenWeights(const Plan& plan,
                             const ModelGraph& graph,
                             ProgramWriter& writer,
                             TaskTable& tasks,
                             Communicators& communicators)
    : plan_(plan), graph_(graph), writer_(writer), tasks_(tasks), communicators_(communicators) {
  if (plan.workload.engine == TrainingEngine::fsdp) {
    units_ = fsdp_units(plan.fsdp, plan.engine_parameters, plan.wrapped_block);
    for (std::size_t u = 0; u < units_.size(); ++u) unit_slots_.push_back(writer.new_slot());
    unit_held_.resize(units_.size(), false);
  }
  if (!runs_zero3(plan)) return;
  coordinator_.emplace(fetch_model(plan), plan.engine);
  walk_.emplace(*plan.model, graph);
  const StreamId gather =
      plan.engine.overlap_comm ? writer.add_stream("gather beside") : kComputeStream;
  fetches_.emplace(
      plan, plan.engine, writer, tasks, communicators, gather, FetchWriter::Of::beside);
}

// Zero where it is not on the GPU.
Bytes FrozenWeights::stored(std::size_t parameter) const {
  const Elements numel = plan_.engine_parameters[parameter].numel;
  if (!runs_deepspeed(plan_.workload)) return numel * plan_.ddp.weight_dtype;
  if (!runs_zero3(plan_)) return numel * plan_.engine.model_dtype;
  if (plan_.engine.offload_parameter.device != OffloadDevice::none) return Bytes::zero();
  return partitioned_numel(numel, partition_ranks(plan_.engine)) * plan_.engine.model_dtype;
}

void FrozenWeights::hold() {
  const auto keep = [&](Bytes bytes) {
    if (bytes == Bytes::zero()) return;
    writer_.allocate(writer_.new_slot(),
                     bytes,
                     MemoryCategory::parameters,
                     kComputeStream,
                     Purpose::weights_beside);
  };
  keep(graph_.buffers);
  if (!units_.empty()) {
    for (const FsdpUnit& unit : units_) keep(stored_bytes(plan_.fsdp, unit));
    return;
  }
  for (std::size_t p = 0; p < plan_.engine_parameters.size(); ++p) keep(stored(p));
}

void FrozenWeights::begin_forward() {
  if (!units_.empty()) gather_unit(0);
  if (!coordinator_) return;
  coordinator_->begin_micro_step(log_);
  fetches_->write(log_);
}

// FSDP gathers a block before its pass and lets go of the one before, so that two are there for a
// moment (limit_all_gathers).
void FrozenWeights::begin_block(const PassStep& pass) {
  if (units_.empty()) return;
  const BlockInstance& instance = graph_.instances[static_cast<std::size_t>(pass.instance)];
  for (const std::int32_t parameter : instance.parameters) {
    const int block = plan_.wrapped_block[static_cast<std::size_t>(parameter)];
    const std::size_t unit = unit_of(units_, block);
    if (block < 0 || unit == 0 || unit_held_[unit]) continue;
    gather_unit(unit);
    gathered_.push_back(unit);
  }
}

void FrozenWeights::gather_unit(std::size_t unit) {
  const Bytes bytes = gathered_bytes(plan_.fsdp, units_[unit]);
  writer_.allocate(
      unit_slots_[unit], bytes, MemoryCategory::parameters, kComputeStream, Purpose::gathered_unit);
  unit_held_[unit] = true;
  const CollectiveGroup group = communicators_.group_of(plan_.fsdp.shard_ranks);
  communicators_.launch(
      kComputeStream, tasks_.collective(Collective::all_gather, bytes, group), group, false);
}

void FrozenWeights::follow(const PassStep& pass, const Event& event) {
  if (!walk_) return;
  walk_->follow(pass, event, [&](const ModuleStep& step) { module_step(step); });
}

void FrozenWeights::end_block() {
  while (gathered_.size() > 1) {
    const std::size_t unit = gathered_.front();
    writer_.release(unit_slots_[unit]);
    unit_held_[unit] = false;
    gathered_.erase(gathered_.begin());
  }
}

void FrozenWeights::end_forward() {
  if (walk_) {
    walk_->leave(FetchPass::forward, [&](const ModuleStep& step) { module_step(step); });
  }
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (unit_held_[u]) writer_.release(unit_slots_[u]);
    unit_held_[u] = false;
  }
  gathered_.clear();
}

// --- ZeRO-3

void FrozenWeights::module_step(const ModuleStep& step) {
  if (step.enters) coordinator_->enter(step.module, step.pass, log_);
  if (!step.enters) coordinator_->exit(step.module, step.pass, log_);
  fetches_->write(log_);
}

}  // namespace zeroplan::simulator
