// modeling_bloom: ALiBi added by baddbmm, fused projection by heads, eager attention only.
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

// fused_qkv.view(b, s, heads, 3, d)[..., i, :].transpose(1, 2)
Tensor part_of(Tape& t, const Context& c, const Tensor& fused) {
  Tensor part = aten::select(t, fused, -2);
  part = aten::slice(t, part, -1, c.shape().head_dim);  // ":" is a slice with its own backward
  return aten::transpose(t, part, 1, 2);
}

// .reshape(b * heads, s, d)
Tensor head_rows(Tape& t, const Context& c, const Tensor& part) {
  const TransformerShape& shape = c.shape();
  return aten::reshape(t, part, Shape{c.batch * shape.heads, c.sequence, shape.head_dim});
}

Tensor self_attention(Tape& t, const Context& c, const Tensor& hidden, const Tensor& residual) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attention", in);
  const TransformerShape& shape = c.shape();
  const std::int64_t rows = c.batch * shape.heads, s = c.sequence;
  Tensor fused = linear(t, c, "query_key_value", in);
  fused = aten::view(t, fused, Shape{c.batch, s, shape.heads, 3, shape.head_dim});
  Tensor query = part_of(t, c, fused);
  Tensor key = part_of(t, c, fused);
  Tensor value = part_of(t, c, fused);
  // Since 4.44 the cache gets views of the fused projection, before that the copies.
  const bool cache_of_views = c.acts(ReleaseRule::bloom_caches_views);
  if (cache_of_views) update_cache(t, c, key, value);
  query = head_rows(t, c, query);
  key = head_rows(t, c, key);
  value = head_rows(t, c, value);
  if (!cache_of_views) update_cache(t, c, key, value);
  const Tensor key_columns = aten::transpose(t, key, -1, -2);
  const Tensor alibi =
      t.shared(static_cast<std::int32_t>(Slot::alibi), Shape{rows, 1, s}, t.dtype());
  const Tensor result = aten::baddbmm(t, alibi, query, key_columns);
  Tensor scores = aten::view(t, result, Shape{c.batch, shape.heads, s, s});
  // Since 4.44 the mask is a sum's addend; before that what it hides is filled.
  scores =
      cache_of_views ? aten::add(t, scores, mask(t, c)) : aten::masked_fill(t, scores, mask(t, c));
  Tensor probabilities = aten::softmax(t, scores, DType::fp32);
  probabilities = aten::to(t, probabilities, t.dtype());
  probabilities = dropout(t, "attention_dropout", probabilities, shape.attention_dropout);
  const Tensor flat = aten::view(t, probabilities, Shape{rows, s, s});
  Tensor context = aten::bmm(t, flat, value);
  context = aten::view(t, context, Shape{c.batch, shape.heads, s, shape.head_dim});
  context = aten::transpose(t, context, 1, 2);
  context = merge_heads(t, context);
  Tensor out = linear(t, c, "dense", context);
  out = aten::dropout(t, out, shape.hidden_dropout);
  out = aten::add(t, residual, out);
  return t.leave(scope, out);
}

Tensor bloom_mlp(Tape& t, const Context& c, const Tensor& x, const Tensor& residual) {
  Tensor hidden = x;
  const auto scope = t.enter("mlp", hidden);
  hidden = linear(t, c, "dense_h_to_4h", hidden);
  {
    Tensor in = hidden;
    const auto gelu = t.enter("gelu_impl", in);
    hidden = t.leave(gelu, activation(t, c.shape().activation, in));
  }
  Tensor out = linear(t, c, "dense_4h_to_h", hidden);
  out = aten::dropout(t, out, c.shape().hidden_dropout);
  out = aten::add(t, residual, out);
  return t.leave(scope, out);
}

Tensor bloom_block(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor normed = layer_norm(t, "input_layernorm", hidden);
  const Tensor attended = self_attention(t, c, normed, hidden);
  normed = layer_norm(t, "post_attention_layernorm", attended);
  return t.leave(scope, bloom_mlp(t, c, normed, attended));
}

}  // namespace

void build_bloom(GraphAssembler& assembler, const Context& given) {
  Context c = given;
  c.attention = Attention::eager;
  const TransformerShape& shape = c.shape();
  const auto beside = [&](Tape& t) {
    {
      // build_alibi_tensor: slopes times positions in fp32, cast to the model's dtype
      const Shape rows{c.batch * shape.heads, 1, c.sequence};
      Tensor alibi = t.empty(rows, DType::fp32);
      t.launch({.name = "mul", .traffic = alibi.bytes()});
      alibi = aten::to(t, alibi, t.dtype());
      t.share(static_cast<std::int32_t>(Slot::alibi), alibi);
    }
    share_mask(t, c);
  };
  assembler.set_hidden(c.hidden_shape(), beside);
  assembler.add("BloomModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "transformer.word_embeddings");
    hold_embeddings(t, c, hidden);
    hidden = layer_norm(t, "transformer.word_embeddings_layernorm", hidden);
    beside(t);
    return hidden;
  });
  assembler.add_layers(
      "BloomBlock", "transformer.h.", shape.layers, [&](Tape& t) { return bloom_block(t, c); });
  keep_logits(assembler, c);
  add_causal_head(assembler,
                  c,
                  "BloomForCausalLM head",
                  "transformer.ln_f",
                  {"lm_head",
                   "transformer.word_embeddings",
                   loss_where(c, ReleaseRule::older_models_share_loss, LossCode::bf16_in_model)});
}

}  // namespace zeroplan::hf
