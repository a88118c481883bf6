// Buffers of stage 0 and of BF16_Optimizer.
//
// Sources: runtime/fp16/fused_optimizer.py FP16_Optimizer.__init__,
// runtime/fp16/unfused_optimizer.py FP16_UnfusedOptimizer.__init__ (both run a real optimizer step
// at init, so states exist from the start), runtime/bf16_optimizer.py _setup_for_real_optimizer.
// Bucket copies and step temporaries are in transients.hpp.
#include "model/engine/buffer_list.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/releases.hpp"

namespace zeroplan::detail {

namespace {

void add_plain(BufferList& list, std::span<const EngineParameter> parameters) {
  add_module_parameters(list, parameters, /*frozen_only=*/false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].trainable) continue;
    list.add(BufferName::module_gradients,
             static_cast<int>(i),
             parameters[i].numel,
             list.config().model_dtype,
             BufferPlace::gpu,
             MemoryCategory::gradients,
             BufferLifetime::window_to_step)
        .held_by_optimizer = false;
    add_states(list,
               static_cast<int>(i),
               parameters[i].numel,
               BufferPlace::gpu,
               states_at_init(list.config().optimizer) ? BufferLifetime::resident
                                                       : BufferLifetime::first_step_on);
  }
}

void add_unfused(BufferList& list, const FlatPartition& partition, int g) {
  const std::vector<int>& members = partition.groups[static_cast<std::size_t>(g)].declared;
  add_per_parameter(list,
                    BufferName::fp16_groups,
                    "",
                    g,
                    members,
                    partition,
                    list.config().model_dtype,
                    MemoryCategory::parameters,
                    BufferLifetime::resident);
  add_per_parameter(list,
                    BufferName::fp32_groups,
                    "",
                    g,
                    members,
                    partition,
                    list.config().master_dtype,
                    MemoryCategory::optimizer_states,
                    BufferLifetime::resident);
  for (int parameter : members) {
    add_states(list,
               -1,
               partition.numels[static_cast<std::size_t>(parameter)],
               BufferPlace::gpu,
               BufferLifetime::resident);
  }
}

void add_fused(BufferList& list, const FlatPartition& partition, int g) {
  const Elements numel = partition.groups[static_cast<std::size_t>(g)].numel;
  list.add(BufferName::fp16_groups_flat,
           g,
           numel,
           list.config().model_dtype,
           BufferPlace::gpu,
           MemoryCategory::parameters,
           BufferLifetime::resident);
  list.add(BufferName::fp32_groups_flat,
           g,
           numel,
           list.config().master_dtype,
           BufferPlace::gpu,
           MemoryCategory::optimizer_states,
           BufferLifetime::resident);
  add_states(list, -1, numel, BufferPlace::gpu, BufferLifetime::resident);
}

}  // namespace

void add_dense_buffers(BufferList& list, std::span<const EngineParameter> parameters) {
  const OptimizerWrapper wrapper = optimizer_wrapper(list.config());
  if (wrapper == OptimizerWrapper::plain) {
    add_plain(list, parameters);
    return;
  }
  add_module_parameters(list, parameters, /*frozen_only=*/true);
  const FlatPartition partition = flat_partition(list.config(), parameters);
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const int index = static_cast<int>(g);
    if (wrapper == OptimizerWrapper::fp16_fused) {
      add_fused(list, partition, index);
    } else {
      add_unfused(list, partition, index);
    }
    // Gradients add up in the model dtype over the window. 0.17 forgets those of bf16 without
    // ZeRO after the step (engine.py _take_model_step): they stay.
    const bool kept = list.config().acts(ReleaseRule::keeps_bf16_gradients) &&
                      list.config().stage == 0 && list.config().model_dtype == DType::bf16;
    add_per_parameter(list,
                      BufferName::fp16_groups,
                      ".grad",
                      index,
                      partition.groups[g].declared,
                      partition,
                      list.config().model_dtype,
                      MemoryCategory::gradients,
                      kept ? BufferLifetime::first_backward_on : BufferLifetime::window_to_step);
  }
}

void add_bf16_optimizer_buffers(BufferList& list, std::span<const EngineParameter> parameters) {
  const EngineConfig& config = list.config();
  add_module_parameters(list, parameters, /*frozen_only=*/true);
  const FlatPartition partition = flat_partition(config, parameters);
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const FlatGroup& group = partition.groups[g];
    const int index = static_cast<int>(g);
    list.add(BufferName::bf16_groups_flat,
             index,
             group.aligned,
             config.model_dtype,
             BufferPlace::gpu,
             MemoryCategory::parameters,
             BufferLifetime::resident);
    list.add(BufferName::fp32_groups_flat_partition,
             index,
             group.partition,
             config.master_dtype,
             BufferPlace::gpu,
             MemoryCategory::optimizer_states,
             BufferLifetime::resident);
    // Gradients of the whole model, not of the partition, permanently.
    list.add(BufferName::fp32_groups_gradients_flat,
             index,
             group.aligned,
             config.gradient_accumulation_dtype,
             BufferPlace::gpu,
             MemoryCategory::gradients,
             BufferLifetime::resident);
    add_states(list, -1, group.partition, BufferPlace::gpu, states_lifetime(config));
    // Zeroed, not freed, between the micro-steps of a window; freed by the step's zero_grad. Up to
    // 0.17 nothing frees them before the next backward begins, so they lie there in the forward.
    add_per_parameter(list,
                      BufferName::bf16_groups,
                      ".grad",
                      index,
                      group.declared,
                      partition,
                      config.model_dtype,
                      MemoryCategory::gradients,
                      config.acts(ReleaseRule::frees_bf16_gradients)
                          ? BufferLifetime::window_to_step
                          : BufferLifetime::first_backward_on);
  }
}

}  // namespace zeroplan::detail
