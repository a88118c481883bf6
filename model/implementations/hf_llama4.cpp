// modeling_llama4 of transformers 5.17, the text model: positions as complex numbers, layers that
// see their chunk, experts that every token runs through.
// Checked by rehearsals: tests/reference/rehearsal/matrix/families_hybrid.jsonl.
#include <algorithm>
#include <utility>
#include <vector>

#include "model/graph/aten_recurrent.hpp"
#include "model/implementations/hf_moe.hpp"
#include "model/implementations/hf_rotary.hpp"
#include "model/implementations/hf_text_models.hpp"
#include "model/implementations/hf_window_masks.hpp"

namespace zeroplan::hf {

namespace {

// x * rsqrt(mean(x^2) + eps) of the fp32 `wide`.
Tensor llama4_over_root_mean_square(Tape& t, const Tensor& wide) {
  Tensor factor = aten::pow(t, wide, 2);
  factor = aten::mean_last(t, factor);
  factor = aten::shift(t, factor);
  factor = aten::rsqrt(t, factor);
  return aten::mul(t, wide, factor);
}

// Llama4TextRMSNorm.forward: _norm(x.float()).type_as(x) * weight
Tensor norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor wide = aten::to(t, in, DType::fp32);
  Tensor normed = llama4_over_root_mean_square(t, wide);
  wide = Tensor();
  normed = aten::to(t, normed, x.dtype());
  return t.leave(scope, aten::mul(t, normed, t.module_parameter("weight")));
}

// Llama4TextL2Norm.forward
Tensor llama4_l2_norm(Tape& t, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("qk_norm", in);
  Tensor wide = aten::to(t, in, DType::fp32);
  const Tensor normed = llama4_over_root_mean_square(t, wide);
  wide = Tensor();
  return t.leave(scope, aten::to(t, normed, x.dtype()));
}

// use_qk_norm: modules without parameters.
bool has_head_norms(const Context& c) {
  const std::vector<Module>& modules = c.model.modules;
  return std::any_of(modules.begin(), modules.end(), [](const Module& module) {
    return module.type == "Llama4TextL2Norm";
  });
}

// --- attention; heads are in dimension 2 until the kernel is called

Tensor project(
    Tape& t, const Context& c, std::string_view module, const Tensor& x, std::int64_t heads) {
  const Tensor states = linear(t, c, module, x);
  return aten::view(t, states, Shape{c.batch, c.sequence, heads, c.shape().head_dim});
}

// apply_rotary_emb, whose frame holds all it made until it returns.
void turn_llama4(Tape& t, const Context& c, Tensor& query, Tensor& key) {
  const Tensor wide_query = aten::to(t, query, DType::fp32);
  const Tensor wide_key = aten::to(t, key, DType::fp32);
  const Tensor turned_query = turned_complex(t, c, wide_query, 2);
  const Tensor turned_key = turned_complex(t, c, wide_key, 2);
  const Tensor narrow_query = aten::to(t, turned_query, query.dtype());
  const Tensor narrow_key = aten::to(t, turned_key, key.dtype());
  query = narrow_query;
  key = narrow_key;
}

// Queries by a number of their position, in fp32 and back.
Tensor tempered(Tape& t, const Context& c, const Tensor& query) {
  Tensor scales = t.empty(Shape{1, c.sequence, 1, 1}, DType::fp32);
  t.launch({.name = "log1p", .traffic = scales.bytes() * 2, .kernels = 8});
  const Tensor scaled = aten::mul(t, query, scales);
  return aten::to(t, scaled, query.dtype());
}

// Llama4TextAttention.forward
Tensor llama4_self_attention(Tape& t,
                             const Context& c,
                             const Tensor& hidden,
                             const LayerAttention& kind,
                             const Tensor& mask) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  Tensor query = project(t, c, "q_proj", in, shape.heads);
  Tensor key = project(t, c, "k_proj", in, shape.kv_heads);
  Tensor value = project(t, c, "v_proj", in, shape.kv_heads);
  value = aten::transpose(t, value, 1, 2);
  if (kind.rotary) turn_llama4(t, c, query, key);
  if (kind.rotary && has_head_norms(c)) {
    query = llama4_l2_norm(t, query);
    key = llama4_l2_norm(t, key);
  }
  if (!kind.rotary) query = tempered(t, c, query);
  query = aten::transpose(t, query, 1, 2);
  key = aten::transpose(t, key, 1, 2);
  update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  arguments.fp32_softmax = false;
  arguments.mask = mask;
  Tensor out = attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "o_proj", out);
  return t.leave(scope, out);
}

// --- experts

// Llama4Router.forward; `logits` live until the layer returns.
Tensor route(Tape& t, const Context& c, const Tensor& rows, Tensor& logits) {
  logits = linear(t, c, "router", rows);
  const Tensor chosen = aten::topk(t, logits, c.shape().experts.experts_per_token);
  Tensor scores = aten::scatter_into_full(t, chosen, logits.shape());
  const Tensor wide = aten::to(t, scores, DType::fp32);
  scores = aten::sigmoid(t, wide);
  return aten::to(t, scores, t.dtype());
}

// Llama4TextExperts.forward: each expert's product over all tokens.
Tensor all_experts(Tape& t, const Context& c, const Tensor& routed) {
  Tensor in = routed;
  const auto scope = t.enter("experts", in);
  const ExpertShape& shape = c.shape().experts;
  const std::int64_t rows = in.size(0), hidden = in.size(1);
  in = aten::view(t, in, Shape{shape.experts, rows / shape.experts, hidden});
  const Tensor both = aten::bmm(t, in, t.module_parameter("gate_up_proj"));
  const std::vector<Tensor> halves =
      aten::split(t, both, {shape.intermediate, shape.intermediate}, -1);
  Tensor states;
  {
    const Tensor activated = activation(t, c.shape().activation, halves[0]);
    states = aten::mul(t, halves[1], activated);
  }
  states = aten::bmm(t, states, t.module_parameter("down_proj"));
  return t.leave(scope, aten::view(t, states, Shape{rows, hidden}));
}

// Llama4TextMoe.forward: every expert gets every token, times a score that is 0 where it was not
// chosen.
Tensor mixture(Tape& t, const Context& c, const Tensor& hidden, Tensor& logits) {
  Tensor in = hidden;
  const auto scope = t.enter("feed_forward", in);
  const std::int64_t experts = c.shape().experts.experts;
  const std::int64_t tokens = c.batch * c.sequence, width = c.shape().hidden;
  const Tensor rows = aten::view(t, in, Shape{tokens, width});
  const Tensor scores = route(t, c, rows, logits);
  Tensor routed = aten::repeat_rows(t, rows, experts);
  {
    const Tensor by_expert = aten::transpose(t, scores, 0, 1);
    const Tensor factors = aten::reshape(t, by_expert, Shape{experts * tokens, 1});
    routed = aten::mul(t, routed, factors);
  }
  const Tensor made = all_experts(t, c, routed);
  Tensor out = gated_mlp(t, c, "shared_expert", rows);
  {
    const Tensor apart = aten::view(t, made, Shape{experts, tokens, width});
    const Tensor sum = aten::sum(t, apart, 0);
    out = aten::add_in_place(t, out, sum);
  }
  return t.leave(scope, out);
}

// Llama4TextDecoderLayer.forward
Tensor llama4_layer(Tape& t, const Context& c, const LayerAttention& kind) {
  Tensor hidden = t.input(c.hidden_shape(), t.dtype());
  const auto scope = t.enter("", hidden);
  const Tensor mask = layer_mask(t, c, kind);
  Tensor residual = hidden;
  Tensor logits;
  hidden = norm(t, "input_layernorm", hidden);
  Tensor attended = llama4_self_attention(t, c, hidden, kind, mask);
  hidden = aten::add(t, residual, attended);
  residual = hidden;
  hidden = norm(t, "post_attention_layernorm", hidden);
  if (has_layer(t, "feed_forward.router")) {
    hidden = mixture(t, c, hidden, logits);
    hidden = aten::view(t, hidden, c.hidden_shape());
  } else {
    hidden = gated_mlp(t, c, "feed_forward", hidden);
  }
  hidden = aten::add(t, residual, hidden);
  return t.leave(scope, hidden);
}

}  // namespace

void build_llama4(GraphAssembler& assembler, const Context& c) {
  assembler.assume("Llama 4's experts all run on every token, as transformers has them.");
  if (!c.acts(ReleaseRule::late_models_described)) {
    assembler.assume("Llama 4 before transformers 5 is described by transformers 5.17.");
  }
  assembler.add("Llama4TextModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.embed_tokens");
    hold_embeddings(t, c, hidden);
    share_window_masks(t, c);
    share_complex_table(t, c);
    return hidden;
  });
  const LayerKinds kinds = layer_kinds(c.shape());
  assembler.add_layer_kinds(
      "Llama4TextDecoderLayer", "model.layers.", kinds.layers, [&](Tape& t, std::size_t kind) {
        return llama4_layer(t, c, kinds.of[kind]);
      });
  keep_logits(assembler, c);
  assembler.add("Llama4ForCausalLM head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape(), t.dtype());
    hidden = norm(t, "model.norm", hidden);
    t.forget_input();
    return causal_loss(t, c, {"lm_head", "model.embed_tokens", LossCode::loss_function}, hidden);
  });
}

}  // namespace zeroplan::hf
