// modeling_phi: rotary positions on a part of each head, parallel residual, biases everywhere.
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

// PhiAttention.forward before 4.48: queries and keys in fp32, which Phi-2 needs.
Tensor upcast_attention(
    Tape& t, const Context& c, const Tensor& query, const Tensor& k, const Tensor& v) {
  const Tensor key = repeat_kv(t, k, query.size(1));
  const Tensor value = repeat_kv(t, v, query.size(1));
  Tensor weights;
  {
    const Tensor wide_query = aten::to(t, query, DType::fp32);
    const Tensor wide_key = aten::to(t, key, DType::fp32);
    const Tensor columns = aten::transpose(t, wide_key, 2, 3);
    weights = aten::matmul(t, wide_query, columns);
  }
  weights = aten::scale(t, weights, "div");
  weights = aten::add_in_place(t, weights, mask(t, c));
  weights = aten::softmax(t, weights, DType::fp32);
  weights = aten::to(t, weights, value.dtype());
  weights = aten::dropout(t, weights, c.shape().attention_dropout);
  Tensor out = aten::matmul(t, weights, value);
  out = aten::transpose(t, out, 1, 2);
  return aten::contiguous(t, out);
}

Tensor phi_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  const auto projected = [&](std::string_view module, std::int64_t heads) {
    const Tensor out = linear(t, c, module, in);
    return split_heads(t, out, heads);
  };
  Tensor query = projected("q_proj", shape.heads);
  Tensor key = projected("k_proj", shape.kv_heads);
  Tensor value = projected("v_proj", shape.kv_heads);
  const RotaryTables tables = layer_rotary_tables(t, c);
  // The rotated parts and the views of the rest stay variables of the frame.
  const std::int64_t rotary = shape.rotary_dim, rest = shape.head_dim - rotary;
  const auto passing = [&](const Tensor& x) {
    return aten::slice(t, rest == 0 ? x.detached() : x, -1, rest);
  };
  Tensor query_rot = aten::slice(t, query, -1, rotary);
  const Tensor query_pass = passing(query);
  Tensor key_rot = aten::slice(t, key, -1, rotary);
  const Tensor key_pass = passing(key);
  query_rot = apply_rotary(t, query_rot, tables);
  key_rot = apply_rotary(t, key_rot, tables);
  query = aten::cat(t, {&query_rot, &query_pass}, -1);
  key = aten::cat(t, {&key_rot, &key_pass}, -1);
  update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  const bool upcast = c.attention == Attention::eager && !c.acts(ReleaseRule::phi_keeps_format);
  Tensor out = upcast ? upcast_attention(t, c, query, key, value)
                      : attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "dense", out);
  return t.leave(scope, out);
}

Tensor phi_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor hidden = x;
  const auto scope = t.enter("mlp", hidden);
  hidden = linear(t, c, "fc1", hidden);
  {
    Tensor in = hidden;
    const auto function = t.enter("activation_fn", in);
    hidden = t.leave(function, activation(t, c.shape().activation, in));
  }
  hidden = linear(t, c, "fc2", hidden);
  return t.leave(scope, hidden);
}

Tensor phi_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  const double p = c.shape().hidden_dropout;
  const Tensor residual = hidden;
  hidden = layer_norm(t, "input_layernorm", hidden);
  Tensor attended = phi_self_attention(t, c, hidden);
  attended = dropout(t, "resid_dropout", attended, p);
  Tensor fed = phi_mlp(t, c, hidden);
  fed = dropout(t, "resid_dropout", fed, p);
  const Tensor sum = aten::add(t, attended, fed);
  hidden = aten::add(t, sum, residual);
  return t.leave(scope, hidden);
}

}  // namespace

void build_phi(GraphAssembler& assembler, const Context& given) {
  const Context c = with_sdpa_where(given, ReleaseRule::phi_has_sdpa);
  if (!c.acts(ReleaseRule::early_decoders_described)) {
    assembler.assume("Phi layers before transformers 4.45 are described by those of 4.45.");
  }
  assembler.add("PhiModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.embed_tokens");
    if (needs_mask(c)) share_mask(t, c);
    hidden = dropout(t, "model.embed_dropout", hidden, c.shape().embedding_dropout);
    hold_embeddings(t, c, hidden);
    if (shares_rotary_tables(c)) share_rotary_tables(t, c);
    return hidden;
  });
  assembler.add_layers("PhiDecoderLayer", "model.layers.", c.shape().layers, [&](Tape& t) {
    return phi_layer(t, c);
  });
  add_causal_head(assembler,
                  c,
                  "PhiForCausalLM head",
                  "model.final_layernorm",
                  {"lm_head",
                   "model.embed_tokens",
                   loss_where(c, ReleaseRule::decoders_share_loss, LossCode::float_in_model)});
}

}  // namespace zeroplan::hf
