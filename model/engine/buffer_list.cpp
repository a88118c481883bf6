#include "model/engine/buffer_list.hpp"

namespace zeroplan::detail {

void add_states(
    BufferList& list, int parameter, Elements numel, BufferPlace place, BufferLifetime lifetime) {
  const EngineConfig& config = list.config();
  for (const OptimizerState& state : optimizer_states(config.optimizer, numel)) {
    EngineBuffer& buffer = list.add(BufferName::state,
                                    parameter,
                                    state_numel(state, numel),
                                    state_dtype(state, config),
                                    place,
                                    MemoryCategory::optimizer_states,
                                    lifetime);
    buffer.suffix = state.suffix;
  }
}

void add_per_parameter(BufferList& list,
                       BufferName name,
                       std::string_view suffix,
                       int group,
                       std::span<const int> members,
                       const FlatPartition& partition,
                       DType dtype,
                       MemoryCategory category,
                       BufferLifetime lifetime,
                       std::span<const EngineParameter> parameters) {
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!parameters.empty() && !parameters[static_cast<std::size_t>(members[i])].used) continue;
    EngineBuffer& buffer = list.add(name,
                                    group,
                                    partition.numels[static_cast<std::size_t>(members[i])],
                                    dtype,
                                    BufferPlace::gpu,
                                    category,
                                    lifetime);
    buffer.second_index = static_cast<int>(i);
    buffer.suffix = suffix;
  }
}

void add_module_parameters(BufferList& list,
                           std::span<const EngineParameter> parameters,
                           bool frozen_only) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (frozen_only && parameters[i].trainable) continue;
    list.add(BufferName::module_parameters,
             static_cast<int>(i),
             parameters[i].numel,
             list.config().model_dtype,
             BufferPlace::gpu,
             MemoryCategory::parameters,
             BufferLifetime::resident)
        .held_by_optimizer = false;
  }
}

}  // namespace zeroplan::detail
