// Where activations go besides the GPU that made them: to the host, and to the ranks that share a
// sequence.
#include <string>

#include "model/graph/traced_graph.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/resolver.hpp"

namespace zeroplan {

// The workload's key, else DeepSpeed's. A native loop that sets cpu_checkpointing checkpoints
// through deepspeed.checkpointing, which reads it; the Trainer calls torch's own.
void resolve_activation_offload(Resolver& r) {
  Workload& workload = r.plan.workload;
  const bool full = workload.activation_checkpointing == ActivationCheckpointing::full;
  const bool said = r.scenario.find(ScenarioKey::activation_offload) != nullptr;
  const bool knob = r.plan.ds_config.boolean(Knob::activation_cpu_checkpointing).value_or(false);
  if (!said && knob && full) {
    if (workload.frontend == Frontend::native) {
      workload.activation_offload = ActivationOffload::cpu;
      r.assume(
          "checkpoints of activations wait in host memory: cpu_checkpointing of the ds_config, "
          "which the training loop is assumed to heed");
    } else {
      r.warn(phrase("{}: {}: without effect, the Trainer checkpoints through PyTorch",
                    r.ds_config_file,
                    pointer_of(Knob::activation_cpu_checkpointing)));
    }
  }
  if (workload.activation_offload == ActivationOffload::cpu && !full) {
    r.not_modelled(ScenarioKey::activation_offload,
                   "offload of activations without full checkpointing");
  }
}

void resolve_tiled_mlp(Resolver& r) {
  Workload& workload = r.plan.workload;
  workload.tiled_mlp = r.boolean(ScenarioKey::tiled_mlp).value_or(false);
  if (!workload.tiled_mlp) return;
  if (workload.implementation != Implementation::hf || !has_tiled_mlp(*r.plan.model)) {
    r.not_modelled(ScenarioKey::tiled_mlp, "a tiled feed-forward of this model, code or method");
  }
}

// DeepSpeed-Ulysses: heads and tokens must divide by its ranks, keys' heads divide them or be
// divided (ulysses_sp.py __init__).
void resolve_sequence_parallel(Resolver& r) {
  const Workload& workload = r.plan.workload;
  const std::int64_t ranks = workload.sequence_parallel;
  if (ranks <= 1) return;
  const Model& model = *r.plan.model;
  const bool described = workload.engine == TrainingEngine::deepspeed &&
                         workload.implementation == Implementation::hf &&
                         workload.images.count == 0;
  const bool has = has_ulysses(model, workload.attention);
  const bool known = traced_graph_of(model) != nullptr || model.implementation_family == "decoder";
  if (described && known && !has && workload.attention != Attention::eager) {
    r.problem(r.origin(ScenarioKey::sequence_parallel),
              "1 for a model that reads other tokens in more than its attention (convolutions, "
              "linear attention), or whose attention is handed a mask (windows under sdpa)",
              phrase("{} with {}", std::to_string(ranks), model.architecture));
    return;
  }
  if (!described || !has) {
    r.not_modelled(ScenarioKey::sequence_parallel,
                   "sequence-parallel (Ulysses) ranks for this model, code, attention or engine");
    return;
  }
  const auto require = [&](bool holds, const Phrase& expected) {
    if (!holds) {
      r.problem(r.origin(ScenarioKey::sequence_parallel), expected, std::to_string(ranks));
    }
  };
  const std::int64_t heads = model.shape.heads;
  const std::int64_t kv = model.shape.kv_heads;
  require(heads % ranks == 0,
          phrase("sequence-parallel ranks that divide {} attention heads", heads));
  require(kv % ranks == 0 || ranks % kv == 0,
          phrase("sequence-parallel ranks that divide {} key heads or are divided by them", kv));
  require(workload.sequence_length % ranks == 0,
          phrase("sequence-parallel ranks that divide {} tokens", workload.sequence_length));
}

}  // namespace zeroplan
