// InternLM2ForCausalLM. Its code is in the repositories of the checkpoints, not in transformers,
// and is LLaMA's of transformers 4.41 with one projection for queries, keys and values.
//
// Source: modeling_internlm2.py of internlm/internlm2-7b and internlm2_5-7b.
#include <algorithm>
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

constexpr Version kWrittenFor = {4, 41};

struct Internlm2Heads {
  Tensor query, key, value;
};

// wqkv has, for each head of keys, the heads of queries that read it, its keys and its values:
// rearrange(x, "b q (h gs d) -> b q h gs d"). Keys and values are views of it; queries of several
// a group are copied when they are laid side by side.
Internlm2Heads project_internlm2(Tape& t, const Context& c, const Tensor& x) {
  const TransformerShape& shape = c.shape();
  const std::int64_t groups = shape.heads / shape.kv_heads, d = shape.head_dim;
  Tensor fused = linear(t, c, "wqkv", x);
  fused = aten::view(t, fused, Shape{c.batch, c.sequence, shape.kv_heads, groups + 2, d});
  const Tensor queries = aten::slice(t, fused, 3, groups);
  Internlm2Heads heads;
  heads.query = aten::reshape(t, queries, Shape{c.batch, c.sequence, shape.heads, d});
  heads.key = aten::select(t, fused, 3);
  heads.value = aten::select(t, fused, 3);
  for (Tensor* each : {&heads.query, &heads.key, &heads.value}) {
    *each = aten::transpose(t, *each, 1, 2);
  }
  return heads;
}

// InternLM2SdpaAttention.forward
Tensor internlm2_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attention", in);
  Internlm2Heads heads = project_internlm2(t, c, in);
  const RotaryTables tables = own_rotary_tables(t, c);
  {
    // apply_rotary_pos_emb holds both results until it returns
    const Tensor query = apply_rotary(t, heads.query, tables);
    const Tensor key = apply_rotary(t, heads.key, tables);
    heads.query = query;
    heads.key = key;
  }
  update_cache(t, c, heads.key, heads.value);
  Tensor out = ulysses_attention(t, c, heads.query, heads.key, heads.value, {});
  heads = {};
  out = merge_heads(t, out);
  out = linear(t, c, "wo", out);
  return t.leave(scope, out);
}

// InternLM2MLP.forward: w2(act_fn(w1(x)) * w3(x))
Tensor internlm2_feed_forward(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("feed_forward", in);
  Tensor gate = linear(t, c, "w1", in);
  gate = activation(t, c.shape().activation, gate);
  Tensor product;
  {
    const Tensor up = linear(t, c, "w3", in);
    product = aten::mul(t, gate, up);
    gate = Tensor();
  }
  const Tensor out = linear(t, c, "w2", product);
  return t.leave(scope, out);
}

Tensor internlm2_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor residual = hidden;
  hidden = rms_norm(t, "attention_norm", hidden);
  hidden = internlm2_self_attention(t, c, hidden);
  hidden = aten::add(t, residual, hidden);
  residual = hidden;
  hidden = rms_norm(t, "ffn_norm", hidden);
  hidden = internlm2_feed_forward(t, c, hidden);
  hidden = aten::add(t, residual, hidden);
  return t.leave(scope, hidden);
}

}  // namespace

void build_internlm2(GraphAssembler& assembler, const Context& given) {
  // What later releases of transformers changed in their own classes is not in this one.
  GraphOptions options = given.options;
  options.transformers = std::min(options.transformers, kWrittenFor);
  const Context c{given.model, options, given.batch, given.sequence, given.attention};
  assembler.assume(
      "InternLM2 takes its attention from attn_implementation of config.json, which says eager in "
      "the published ones: name the attention that it has.");
  const auto beside = [&](Tape& t) {
    if (needs_mask(c)) share_mask(t, c);
  };
  assembler.set_hidden(c.hidden_shape(), beside);
  assembler.add("InternLM2Model inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.tok_embeddings");
    hold_embeddings(t, c, hidden);
    beside(t);
    return hidden;
  });
  assembler.add_layers("InternLM2DecoderLayer", "model.layers.", c.shape().layers, [&](Tape& t) {
    return internlm2_layer(t, c);
  });
  keep_logits(assembler, c);
  assembler.add("InternLM2ForCausalLM head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape());
    hidden = rms_norm(t, "model.norm", hidden);
    t.forget_input();  // hidden_states = self.norm(hidden_states)
    return causal_loss(t, c, {"output", "model.tok_embeddings", LossCode::float_in_model}, hidden);
  });
}

}  // namespace zeroplan::hf
