#include "model/engine/initialization.hpp"

#include "model/engine/partition.hpp"
#include "model/releases.hpp"

namespace zeroplan {

namespace {

void collective(const EngineConfig& config,
                CollectiveKind kind,
                int parameter,
                Elements elements,
                EngineActions& out) {
  EngineAction action;
  action.kind = ActionKind::collective;
  action.parameter = parameter;
  action.elements = elements;
  action.dtype = config.model_dtype;
  action.collective.kind = kind;
  action.collective.ranks = config.data_parallel_ranks;
  if (kind == CollectiveKind::broadcast) action.collective.root = 0;
  out.actions.push_back(action);
}

void broadcast_all(const EngineConfig& config,
                   std::span<const EngineParameter> parameters,
                   EngineActions& out) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    collective(config, CollectiveKind::broadcast, static_cast<int>(i), parameters[i].numel, out);
  }
}

}  // namespace

void build_module(const EngineConfig& config,
                  std::span<const EngineParameter> parameters,
                  EngineActions& out) {
  if (config.stage < 3 || !config.stage3.zero_init) return;
  broadcast_all(config, parameters, out);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (int extra = 1; extra < parameters[i].tensors_built; ++extra) {
      collective(config, CollectiveKind::broadcast, static_cast<int>(i), parameters[i].numel, out);
    }
  }
}

void initialize_engine(const EngineConfig& config,
                       std::span<const EngineParameter> parameters,
                       EngineActions& out) {
  if (config.stage < 3) {
    broadcast_all(config, parameters, out);
    return;
  }
  if (!config.stage3.zero_init) {
    // Once by the engine, once by the conversion, parameter by parameter.
    broadcast_all(config, parameters, out);
    broadcast_all(config, parameters, out);
  }
  for (int i = 0; i < 3; ++i) {
    collective(config, CollectiveKind::barrier, -1, Elements::zero(), out);
  }
  const int ranks = partition_ranks(config);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].trainable) continue;
    collective(config,
               CollectiveKind::all_gather,
               static_cast<int>(i),
               partitioned_numel(parameters[i].numel, ranks) * ranks,
               out);
    out.actions.back().collective.ranks = ranks;
    out.actions.back().collective.asynchronous = true;
    if (config.stage3.hpz_partition_size > 1) {
      // partition_parameters.py _partition_param_sec: its copy is waited for.
      EngineAction copied;
      copied.kind = ActionKind::host_wait_stream;
      out.actions.push_back(copied);
    }
    if (!config.acts(ReleaseRule::waits_after_lone_gather)) continue;
    EngineAction wait;
    wait.kind = ActionKind::host_wait_device;
    out.actions.push_back(wait);
  }
  if (config.acts(ReleaseRule::makes_states_at_step)) return;
  // stage3.py initialize_optimizer_states: a step of every sub-group on zeros.
  const std::vector<SubGroup> groups = sub_groups(config, parameters);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    EngineAction step;
    step.kind = ActionKind::optimizer_step;
    step.group = static_cast<int>(i);
    step.elements = groups[i].numel;
    step.dtype = config.master_dtype;
    step.on_host = groups[i].on_host;
    out.actions.push_back(step);
  }
}

}  // namespace zeroplan
