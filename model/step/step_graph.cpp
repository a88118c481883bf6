#include "model/step/step_graph.hpp"

#include "model/implementations/implementations.hpp"
#include "model/step/graph_options.hpp"

namespace zeroplan {
namespace {

// With use_orig_params the parameters that the forward pass sees are views of the flat parameter,
// which needs a gradient as soon as one parameter in it does: frozen ones get gradients, too
// (fully_sharded_data_parallel.py, on frozen parameters; _flat_param.py _get_unflat_views).
Model with_flat_parameters_trained(const Plan& plan) {
  Model model = *plan.model;
  for (const FsdpUnit& unit : fsdp_units(plan.fsdp, plan.engine_parameters, plan.wrapped_block)) {
    if (!unit.trains) continue;
    for (const int index : unit.parameters) {
      model.parameters[static_cast<std::size_t>(index)].trainable = true;
    }
  }
  return model;
}

// The scales of four-bit weights hang on the tensors and no engine sees them: they stay whole on
// every GPU (bitsandbytes Params4bit.quant_state). DDP and FSDP have them among their buffers.
Bytes scales_beside_deepspeed(const Plan& plan) {
  Bytes bytes;
  if (!runs_deepspeed(plan.workload)) return bytes;
  for (const Parameter& parameter : plan.model->parameters) {
    if (!parameter.quantized) continue;
    bytes += four_bit_state(parameter.numel, plan.workload.lora.weights.double_quant);
  }
  return bytes;
}

ModelGraph graph_of(const Plan& plan) {
  const bool mixes = plan.workload.engine == TrainingEngine::fsdp && plan.fsdp.version == 1 &&
                     !plan.fsdp.separate_adapters;
  if (!mixes) return build_graph(*plan.model, graph_options(plan));
  return build_graph(with_flat_parameters_trained(plan), graph_options(plan));
}

}  // namespace

ModelGraph step_graph(const Plan& plan) {
  try {
    ModelGraph graph = graph_of(plan);
    graph.buffers += scales_beside_deepspeed(plan);
    return graph;
  } catch (const InputError& error) {
    throw with_origins(error, plan);
  }
}

}  // namespace zeroplan
