#include "model/step/outside_passes.hpp"

#include <algorithm>

#include "model/engine/partition.hpp"
#include "model/implementations/embedded_memory.hpp"

namespace zeroplan {
namespace {

// Most elements that one module has directly: what is gathered or built at once.
Elements largest_module(const Model& model, std::span<const EngineParameter> parameters) {
  Elements largest;
  for (const Module& module : model.modules) {
    Elements own;
    for (const int parameter : module.parameters) {
      own += parameters[static_cast<std::size_t>(parameter)].numel;
    }
    largest = std::max(largest, own);
  }
  return largest;
}

CategoryBytes on_gpu(const std::vector<EngineBuffer>& buffers, EngineMoment moment, int steps) {
  CategoryBytes bytes{};
  for (const EngineBuffer& buffer : buffers) {
    if (buffer.place != BufferPlace::gpu || !exists(buffer.lifetime, moment, steps)) continue;
    at(bytes, buffer.category) += buffer.bytes;
  }
  return bytes;
}

// Initialisation peaks on its way or at its end. What is there at its end keeps its name; the rest
// is copies of weights.
CategoryBytes init_categories(const std::vector<EngineBuffer>& buffers, int steps, Bytes peak) {
  CategoryBytes bytes = on_gpu(buffers, EngineMoment::initialised, steps);
  at(bytes, MemoryCategory::temporaries) += std::max(Bytes::zero(), peak - sum(bytes));
  return bytes;
}

}  // namespace

OutsidePasses outside_passes(const Plan& plan,
                             const EngineConfig& config,
                             const std::vector<EngineBuffer>& buffers,
                             Bytes gpu_room) {
  const std::span<const EngineParameter> parameters = plan.engine_parameters;
  const Elements module = largest_module(*plan.model, parameters);
  OutsidePasses outside;
  outside.load_peak = load_peak(config, parameters, module);
  outside.init_peak = initialization_peak(config, parameters, gpu_room);
  const HostAndGpu step = step_temporaries(config, parameters);
  const HostAndGpu save = save_peak(config, parameters, module);
  at(outside.load, MemoryCategory::parameters) = outside.load_peak.gpu;
  const int steps = config.gradient_accumulation_steps;
  outside.init = init_categories(buffers, steps, outside.init_peak.gpu);
  outside.save = on_gpu(buffers, EngineMoment::after_step, steps);
  at(outside.save, MemoryCategory::parameters) += save.gpu;
  outside.step_temporaries = step.gpu;
  outside.host_step_temporaries = step.host_pageable + step.host_pinned;
  outside.host_save = save.host_pageable + save.host_pinned;
  return outside;
}

}  // namespace zeroplan
