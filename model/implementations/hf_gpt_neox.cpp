// modeling_gpt_neox: rotary positions on a part of each head, parallel or sequential residual.
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

// eager_attention_forward through 4.48: a product added to zeros, softmax in the compute dtype.
Tensor eager_by_baddbmm(
    Tape& t, const Context& c, const Tensor& q, const Tensor& k, const Tensor& v, double dropped) {
  const std::int64_t heads = q.size(1), s = q.size(2), dim = q.size(3), rows = c.batch * heads;
  const Tensor query = aten::view(t, q, Shape{rows, s, dim});
  const Tensor key = aten::view(t, k, Shape{rows, s, dim});
  Tensor scores;
  {
    const Tensor columns = aten::transpose(t, key, 1, 2);
    scores = t.empty(Shape{rows, s, s}, t.dtype());
    t.launch({.name = "zeros", .kind = OpKind::fill, .traffic = scores.bytes()});
    scores = aten::baddbmm(t, scores, query, columns);
  }
  scores = aten::view(t, scores, Shape{c.batch, heads, s, s});
  scores = aten::add(t, scores, mask(t, c));
  Tensor weights = aten::softmax(t, scores);
  weights = aten::dropout(t, weights, dropped);
  Tensor out = aten::matmul(t, weights, v);
  out = aten::transpose(t, out, 1, 2);
  return aten::contiguous(t, out);
}

Tensor neox_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attention", in);
  const TransformerShape& shape = c.shape();
  Tensor fused = linear(t, c, "query_key_value", in);
  fused = aten::view(t, fused, Shape{c.batch, c.sequence, shape.heads, 3 * shape.head_dim});
  fused = aten::transpose(t, fused, 1, 2);
  std::vector<Tensor> parts =
      aten::split(t, fused, {shape.head_dim, shape.head_dim, shape.head_dim}, -1);
  Tensor query = parts[0], key = parts[1], value = parts[2];
  parts.clear();
  const RotaryTables tables = layer_rotary_tables(t, c);
  {
    const Tensor rotated_query = apply_partial_rotary(t, c, query, tables);
    const Tensor rotated_key = apply_partial_rotary(t, c, key, tables);
    query = rotated_query;
    key = rotated_key;
  }
  update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  arguments.shares_code = ReleaseRule::gpt_neox_rewritten;
  // sdpa_attention_forward of 4.47 and 4.48 copies with and without a mask; older code did not.
  arguments.copies_with_mask = arguments.copies_without_mask =
      c.acts(ReleaseRule::gpt_neox_copies_heads);
  const bool by_baddbmm =
      !c.acts(ReleaseRule::gpt_neox_rewritten) && c.attention == Attention::eager;
  Tensor out = by_baddbmm ? eager_by_baddbmm(t, c, query, key, value, arguments.dropout)
                          : attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "dense", out);
  return t.leave(scope, out);
}

Tensor neox_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor hidden = x;
  const auto scope = t.enter("mlp", hidden);
  hidden = linear(t, c, "dense_h_to_4h", hidden);
  hidden = activation(t, c.shape().activation, hidden);
  hidden = linear(t, c, "dense_4h_to_h", hidden);
  return t.leave(scope, hidden);
}

Tensor neox_feed_forward(Tape& t, const Context& c, const Tensor& x) {
  Tensor fed;
  {
    const Tensor normed = layer_norm(t, "post_attention_layernorm", x);
    fed = neox_mlp(t, c, normed);
  }
  return dropout(t, "post_mlp_dropout", fed, c.shape().hidden_dropout);
}

Tensor neox_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor attended;
  {
    const Tensor normed = layer_norm(t, "input_layernorm", hidden);
    attended = neox_self_attention(t, c, normed);
  }
  attended = dropout(t, "post_attention_dropout", attended, c.shape().hidden_dropout);
  if (c.shape().parallel_residual) {
    const Tensor fed = neox_feed_forward(t, c, hidden);
    const Tensor sum = aten::add(t, fed, attended);
    hidden = aten::add(t, sum, hidden);
  } else {
    attended = aten::add(t, attended, hidden);
    const Tensor fed = neox_feed_forward(t, c, attended);
    hidden = aten::add(t, fed, attended);
  }
  return t.leave(scope, hidden);
}

}  // namespace

void build_gpt_neox(GraphAssembler& assembler, const Context& given) {
  const Context c = with_sdpa_where(given, ReleaseRule::gpt_neox_has_sdpa);
  if (!c.acts(ReleaseRule::gpt_neox_rewritten)) {
    assembler.assume("GPT-NeoX layers before transformers 4.49 are described by those of 4.49.");
  }
  assembler.add("GPTNeoXModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "gpt_neox.embed_in");
    hold_embeddings(t, c, hidden);
    hidden = dropout(t, "gpt_neox.emb_dropout", hidden, c.shape().hidden_dropout);
    if (needs_mask(c)) share_mask(t, c);
    if (shares_rotary_tables(c)) share_rotary_tables(t, c);
    return hidden;
  });
  assembler.add_layers("GPTNeoXLayer", "gpt_neox.layers.", c.shape().layers, [&](Tape& t) {
    return neox_layer(t, c);
  });
  add_causal_head(assembler,
                  c,
                  "GPTNeoXForCausalLM head",
                  "gpt_neox.final_layer_norm",
                  {"embed_out",
                   "gpt_neox.embed_in",
                   loss_where(c, ReleaseRule::older_models_share_loss, LossCode::bf16_in_model)});
  if (!c.acts(ReleaseRule::gpt_neox_rewritten)) add_triangular_masks(assembler, c, "attention");
}

}  // namespace zeroplan::hf
