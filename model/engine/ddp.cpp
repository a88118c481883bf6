#include "model/engine/ddp.hpp"

#include "model/engine/buffer_list.hpp"
#include "model/engine/optimizer_states.hpp"
#include "model/quantization.hpp"

namespace zeroplan {

std::vector<DdpBucket> ddp_buckets(const DdpConfig& config,
                                   std::span<const EngineParameter> parameters,
                                   std::span<const std::int32_t> gradient_order) {
  std::vector<DdpBucket> buckets;
  if (config.ranks <= 1) return buckets;
  const DType dtype = trained_dtype(parameters, config.weight_dtype);
  DdpBucket open;
  for (const std::int32_t index : gradient_order) {
    const EngineParameter& parameter = parameters[static_cast<std::size_t>(index)];
    if (!parameter.trainable) continue;
    open.parameters.push_back(index);
    open.numel += parameter.numel;
    const Bytes limit = buckets.empty() ? config.first_bucket : config.bucket;
    if (open.numel * dtype < limit) continue;
    buckets.push_back(std::move(open));
    open = {};
  }
  if (!open.parameters.empty()) buckets.push_back(std::move(open));
  return buckets;
}

namespace {

// Elements of a byte, where the parameter is stored in four bits.
Elements four_bit_elements(const DdpConfig& config, const EngineParameter& parameter) {
  const Bytes bytes =
      four_bit_weight(parameter.numel) + four_bit_state(parameter.numel, config.double_quant);
  return Elements::of(bytes.count());
}

}  // namespace

Bytes ddp_weight_bytes(const DdpConfig& config, std::span<const EngineParameter> parameters) {
  Bytes bytes;
  for (const EngineParameter& parameter : parameters) {
    bytes += parameter.quantized ? four_bit_elements(config, parameter) * DType::uint8
                                 : parameter.numel * config.dtype_of(parameter);
  }
  return bytes;
}

std::vector<EngineBuffer> ddp_buffers(const DdpConfig& config,
                                      std::span<const EngineParameter> parameters) {
  EngineConfig engine;
  const DType trained_as = trained_dtype(parameters, config.weight_dtype);
  detail::BufferList list(engine);
  const auto add = [&](BufferName name,
                       int index,
                       Elements numel,
                       DType dtype,
                       MemoryCategory category,
                       BufferLifetime lifetime) -> EngineBuffer& {
    return list.add(name, index, numel, dtype, BufferPlace::gpu, category, lifetime);
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const EngineParameter& parameter = parameters[i];
    const int index = static_cast<int>(i);
    add(BufferName::module_parameters,
        index,
        parameter.quantized ? four_bit_elements(config, parameter) : parameter.numel,
        parameter.quantized ? DType::uint8 : config.dtype_of(parameter),
        MemoryCategory::parameters,
        BufferLifetime::resident);
    if (!parameter.trainable) continue;
    if (!config.gradient_as_bucket_view) {
      add(BufferName::module_gradients,
          index,
          parameter.numel,
          config.dtype_of(parameter),
          MemoryCategory::gradients,
          config.gradients_held ? BufferLifetime::window_to_next_backward
                                : BufferLifetime::window_to_step);
    }
    for (const OptimizerState& state :
         optimizer_states(config.optimizer, parameter.numel, parameter.wide_states)) {
      add(BufferName::state,
          index,
          state_numel(state, parameter.numel),
          state.in_state_dtype ? config.dtype_of(parameter) : state.dtype,
          MemoryCategory::optimizer_states,
          BufferLifetime::first_step_on)
          .suffix = state.suffix;
    }
  }
  if (config.ranks <= 1) return list.take();
  // The buckets are made with the Reducer and stay; with views they are the gradients themselves.
  add(BufferName::reducer_buckets,
      -1,
      ddp_trained(parameters),
      trained_as,
      config.gradient_as_bucket_view ? MemoryCategory::gradients
                                     : MemoryCategory::communication_buffers,
      BufferLifetime::resident);
  return list.take();
}

Elements ddp_trained(std::span<const EngineParameter> parameters) {
  Elements trained;
  for (const EngineParameter& parameter : parameters) {
    if (parameter.trainable) trained += parameter.numel;
  }
  return trained;
}

Bytes ddp_step_temporaries(const DdpConfig& config, std::span<const EngineParameter> parameters) {
  Elements largest;
  for (const EngineParameter& parameter : parameters) {
    if (parameter.trainable) largest = std::max(largest, parameter.numel);
  }
  return update_bytes(config.optimizer,
                      config.optimizer_implementation,
                      ddp_trained(parameters),
                      largest,
                      trained_dtype(parameters, config.weight_dtype));
}

}  // namespace zeroplan
