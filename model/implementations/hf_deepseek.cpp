// modeling_deepseek_v2 and modeling_deepseek_v3 of transformers 5.17: multi-head latent attention,
// routers in fp32, stacked experts beside shared ones.
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"
#include "model/implementations/hf_moe.hpp"
#include "model/implementations/hf_rotary.hpp"

namespace zeroplan::hf {

namespace {

bool is_third(const Context& c) { return c.model.model_type == "deepseek_v3"; }

// --- rotary positions

// apply_rotary_emb: in fp32, back in the model's type.
Tensor rotate_complex(Tape& t, const Context& c, const Tensor& x) {
  Tensor turned = aten::to(t, x, DType::fp32);
  turned = turned_complex(t, c, turned, 1);
  return aten::to(t, turned, x.dtype());
}

// apply_rotary_pos_emb_interleave: even and odd elements, with the first half of the tables.
Tensor rotate_pairs(Tape& t, const Tensor& x, const RotaryTables& tables) {
  const Tensor even = aten::every_second(t, x, -1);
  const Tensor odd = aten::every_second(t, x, -1);
  Tensor first, second;
  {
    const Tensor left = aten::mul(t, even, tables.cos);
    const Tensor right = aten::mul(t, odd, tables.sin);
    first = aten::sub(t, left, right);
  }
  {
    const Tensor left = aten::mul(t, odd, tables.cos);
    const Tensor right = aten::mul(t, even, tables.sin);
    second = aten::add(t, left, right);
  }
  return aten::cat(t, {&first, &second}, -1);
}

struct Rotated {
  Tensor query, key;
};

Rotated rotate_deepseek(Tape& t, const Context& c, const Tensor& query, const Tensor& key) {
  Rotated turned;
  if (!is_third(c)) {
    turned.query = rotate_complex(t, c, query);
    turned.key = rotate_complex(t, c, key);
    return turned;
  }
  RotaryTables tables = layer_rotary_tables(t, c);
  const std::int64_t half = c.shape().rotary_dim / 2;
  tables.cos = aten::slice(t, tables.cos, -1, half);
  tables.sin = aten::slice(t, tables.sin, -1, half);
  turned.query = rotate_pairs(t, query, tables);
  turned.key = rotate_pairs(t, key, tables);
  return turned;
}

// --- attention

Tensor project_queries(Tape& t, const Context& c, const Tensor& x) {
  if (c.shape().latent.query_rank == 0) return linear(t, c, "q_proj", x);
  Tensor states = linear(t, c, "q_a_proj", x);
  states = rms_norm(t, "q_a_layernorm", states);
  return linear(t, c, "q_b_proj", states);
}

struct KeysValues {
  Tensor key, value;
};

// expand_kv: kv_b_proj gives what is plain of the keys, and the values; the rotated rest is one
// head's, expanded, and both are copied into the keys.
KeysValues expand_latent(Tape& t, const Context& c, const Tensor& latent, const Tensor& rotated) {
  const LatentAttentionShape& shape = c.shape().latent;
  const std::int64_t heads = c.shape().heads;
  const Tensor rows = aten::view(t, latent, Shape{c.batch, c.sequence, shape.kv_rank});
  const Tensor both = linear(t, c, "kv_b_proj", rows);
  const Tensor split = split_heads(t, both, heads);
  std::vector<Tensor> parts = aten::split(t, split, {shape.plain_dim, shape.value_dim}, -1);
  const Tensor shared =
      aten::expand(t, rotated, Shape{c.batch, heads, c.sequence, c.shape().rotary_dim});
  return {aten::fill_slices(t, parts[0], shared), parts[1]};
}

// Kernels of the flash-attn package want values as wide as queries: padded, the rest dropped.
Tensor padded_attention(
    Tape& t, const Context& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const std::int64_t missing = q.size(3) - v.size(3);
  const Tensor zeros = t.empty(v.shape().with_size(3, missing).as_contiguous(), v.dtype());
  const Tensor wide = aten::cat(t, {&v, &zeros}, -1);
  const Tensor out = attention(t, c, q, k, wide, {});
  return aten::slice(t, out, -1, v.size(3));
}

// DeepseekV3Attention.forward
Tensor deepseek_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const LatentAttentionShape& shape = c.shape().latent;
  const std::int64_t rotary = c.shape().rotary_dim;
  Tensor query = project_queries(t, c, in);
  query = split_heads(t, query, c.shape().heads);
  const std::vector<Tensor> queries = aten::split(t, query, {shape.plain_dim, rotary}, -1);
  const Tensor compressed = linear(t, c, "kv_a_proj_with_mqa", in);
  std::vector<Tensor> latents = aten::split(t, compressed, {shape.kv_rank, rotary}, -1);
  Tensor latent = rms_norm(t, "kv_a_layernorm", latents[0]);
  latent = aten::view(t, latent, Shape{c.batch, 1, c.sequence, shape.kv_rank});
  Tensor turning = aten::view(t, latents[1], Shape{c.batch, 1, c.sequence, rotary});
  const Rotated turned = rotate_deepseek(t, c, queries[1], turning);
  Tensor turned_key = turned.key;
  update_cache(t, c, latent, turned_key);
  query = aten::cat(t, {&queries[0], &turned.query}, -1);
  const KeysValues expanded = expand_latent(t, c, latent, turned_key);
  const bool pads = c.attention == Attention::flash && shape.value_dim < query.size(3);
  AttentionArguments arguments;
  arguments.dropout = c.shape().attention_dropout;
  Tensor out = pads ? padded_attention(t, c, query, expanded.key, expanded.value)
                    : attention(t, c, query, expanded.key, expanded.value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "o_proj", out);
  return t.leave(scope, out);
}

// --- experts

// The experts' scores that a token may choose: those of the best groups (no_grad in effect: of what
// is made here only the mask is kept).
Tensor group_mask(Tape& t, const Tensor& scores) {
  const Tensor mask = t.empty(scores.shape(), DType::boolean);
  t.launch({.name = "scatter", .traffic = scores.bytes() * 4, .kernels = 8});
  return mask;
}

// DeepseekV3TopkRouter.forward, DeepseekV2TopkRouter.forward: in fp32.
Tensor route_deepseek(Tape& t, const Context& c, const Tensor& rows) {
  Tensor in = rows;
  const auto scope = t.enter("gate", in);
  const ExpertShape& shape = c.shape().experts;
  Tensor logits;
  {
    const Tensor wide = aten::to(t, in, DType::fp32);
    const Tensor weight = aten::to(t, t.module_parameter("weight"), DType::fp32);
    logits = c.options.zero3_linear ? aten::zero3_linear(t, wide, weight, Tensor())
                                    : aten::linear(t, wide, weight, Tensor());
  }
  Tensor weights;
  if (is_third(c)) {
    const Tensor scores = aten::sigmoid(t, logits);
    const Tensor shifted = aten::shift(t, scores.detached());  // + e_score_correction_bias
    const Tensor mask = group_mask(t, shifted);
    const Tensor allowed = aten::masked_fill(t, shifted, mask);
    weights = aten::topk(t, scores, shape.experts_per_token);  // topk of `allowed`, gather
    const Tensor sum = aten::mean_last(t, weights);
    weights = aten::mul(t, weights, sum);  // /= denominator
  } else {
    Tensor scores = aten::softmax(t, logits);
    if (shape.groups > 1) {
      const Tensor mask = group_mask(t, scores);
      scores = aten::masked_fill(t, scores, mask);
    }
    weights = aten::topk(t, scores, shape.experts_per_token);
  }
  weights = aten::scale(t, weights);  // * routed_scaling_factor
  return t.leave(scope, weights);
}

// DeepseekV3MoE.forward
Tensor deepseek_mixture(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("mlp", in);
  const Tensor rows = aten::view(t, in, Shape{c.batch * c.sequence, c.shape().hidden});
  const Tensor weights = route_deepseek(t, c, rows);
  Tensor out = fused_experts(t, c, rows, weights, {});
  out = aten::view(t, out, c.hidden_shape());
  const Tensor shared = gated_mlp(t, c, "shared_experts", in);
  out = aten::add(t, out, shared);
  return t.leave(scope, out);
}

// DeepseekV3DecoderLayer.forward
Tensor deepseek_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape(), t.dtype());
  const auto scope = t.enter("", hidden);
  Tensor residual = hidden;
  hidden = rms_norm(t, "input_layernorm", hidden);
  hidden = deepseek_self_attention(t, c, hidden);
  hidden = aten::add(t, residual, hidden);
  residual = hidden;
  hidden = rms_norm(t, "post_attention_layernorm", hidden);
  hidden =
      has_layer(t, "mlp.gate") ? deepseek_mixture(t, c, hidden) : gated_mlp(t, c, "mlp", hidden);
  hidden = aten::add(t, residual, hidden);
  return t.leave(scope, hidden);
}

}  // namespace

void build_deepseek(GraphAssembler& assembler, const Context& c) {
  assembler.assume("Tokens are spread evenly over the experts.");
  if (!c.acts(ReleaseRule::late_models_described)) {
    assembler.assume("DeepSeek before transformers 5 is described by transformers 5.17.");
  }
  const auto beside = [&](Tape& t) {
    if (needs_mask(c)) share_mask(t, c);
    if (!is_third(c)) share_complex_table(t, c);
    if (is_third(c) && shares_rotary_tables(c)) share_rotary_tables(t, c);
  };
  assembler.set_hidden(c.hidden_shape(), beside);
  assembler.add("DeepseekModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.embed_tokens");
    hold_embeddings(t, c, hidden);
    beside(t);
    return hidden;
  });
  assembler.add_layers("DeepseekDecoderLayer", "model.layers.", c.shape().layers, [&](Tape& t) {
    return deepseek_layer(t, c);
  });
  keep_logits(assembler, c);
  assembler.add("DeepseekForCausalLM head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape(), t.dtype());
    hidden = rms_norm(t, "model.norm", hidden);
    t.forget_input();
    return causal_loss(t, c, {"lm_head", "model.embed_tokens", LossCode::loss_function}, hidden);
  });
}

}  // namespace zeroplan::hf
