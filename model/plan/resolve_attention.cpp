// Which code computes attention: what is asked for, or the default of the model's class.
#include <string>

#include "model/graph/traced_graph.hpp"
#include "model/implementations/implementations.hpp"
#include "model/plan/resolver.hpp"
#include "model/release_table.hpp"
#include "model/releases.hpp"

namespace zeroplan {
namespace {

// FlashAttention kernels need compute capability 8.0; classes without a fused path run eager.
Attention default_attention(Resolver& r) {
  const Model& model = *r.plan.model;
  if (r.plan.workload.engine == TrainingEngine::embedded) {
    r.assume("attention flash: the embedded runtime's kernel");
    return Attention::flash;
  }
  if (r.plan.workload.implementation == Implementation::megatron) {
    r.assume("attention eager: Megatron's scores in memory");
    return Attention::eager;
  }
  if (r.plan.workload.implementation != Implementation::hf) {
    r.assume("attention flash: what the model's code calls by default");
    return Attention::flash;
  }
  if (const TracedGraph* traced = traced_graph_of(model)) {
    const auto attention = find(kAttentionNames, std::string_view(traced->attention));
    r.assume(phrase("attention {}: as the model was traced",
                    name(kAttentionNames, attention.value_or(Attention::sdpa))));
    return attention.value_or(Attention::sdpa);
  }
  if (model.shape.position == PositionKind::alibi ||
      model.shape.position == PositionKind::relative_bias) {
    r.assume(phrase("attention eager: {} adds a bias to the scores", model.architecture));
    return Attention::eager;
  }
  // Gemma2PreTrainedModel._check_and_enable_sdpa: sdpa leaves the softcap of the scores out.
  if (model.model_type == "gemma2" &&
      !r.plan.software.transformers_act(ReleaseRule::gemma2_has_sdpa)) {
    r.assume("attention eager: Gemma 2's default before transformers 4.48 and since 5.21");
    return Attention::eager;
  }
  r.assume("attention sdpa: the default of transformers");
  return Attention::sdpa;
}

void warn_of_triton(Resolver& r) {
  constexpr int kHopper = 9;
  const bool errs = r.plan.software.torch_acts(ReleaseRule::triton_errs_in_delta_rule);
  if (r.plan.workload.linear_attention != LinearAttention::fla || !errs) return;
  if (r.plan.cluster.gpu.compute_capability.major != kHopper) return;
  r.warn(phrase(
      "flash-linear-attention from 0.5 on refuses the backward pass on Hopper GPUs with the Triton "
      "of torch {}, whose gradients are wrong: install tilelang, or torch {}",
      to_string(r.plan.software.torch),
      to_string(release_row(ReleaseRule::triton_errs_in_delta_rule).until)));
}

void resolve_linear_attention(Resolver& r) {
  LinearAttention& attention = r.plan.workload.linear_attention;
  const auto said = r.text(ScenarioKey::linear_attention);
  if (said) attention = *find(kLinearAttentionNames, std::string_view(*said));
  if (attention == LinearAttention::torch) return;
  if (attention == kernels_of(*r.plan.model)) {
    warn_of_triton(r);
    return;
  }
  r.warn(phrase("{}: without effect, no layer of {} is described that runs these kernels",
                r.origin(ScenarioKey::linear_attention).pointer,
                r.plan.model->architecture));
  attention = LinearAttention::torch;
}

}  // namespace

void resolve_attention(Resolver& r) {
  resolve_linear_attention(r);
  Attention& attention = r.plan.workload.attention;
  const auto said = r.text(ScenarioKey::attention);
  if (!said) {
    attention = default_attention(r);
    return;
  }
  attention = *find(kAttentionNames, std::string_view(*said));
  const TracedGraph* traced = traced_graph_of(*r.plan.model);
  if (traced != nullptr && traced->recorded && traced->attention != *said) {
    r.warn(phrase("attention {} has no effect: {}'s code runs {} whatever is asked for",
                  *said,
                  r.plan.model->architecture,
                  traced->attention));
    attention = *find(kAttentionNames, std::string_view(traced->attention));
  }
  const bool refused = attention == Attention::sdpa && r.plan.model->model_type == "gemma2" &&
                       r.plan.workload.implementation == Implementation::hf &&
                       r.plan.software.transformers_act(ReleaseRule::gemma2_refuses_sdpa);
  if (!refused) return;
  r.warn(
      phrase("transformers {} has no sdpa for Gemma 2, whose scores are capped: it ends with an "
             "error; planned with eager",
             to_string(r.plan.software.transformers)));
  attention = Attention::eager;
}

}  // namespace zeroplan
