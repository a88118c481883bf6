// modeling_gptj: every second element rotated, positions from a table of the layer's own, parallel
// residual, attention scores in fp32.
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

// x[:, :, :, :size]: every ":" is a slice with a backward of its own
Tensor slice_last(Tape& t, const Tensor& x, std::int64_t size) {
  Tensor part = aten::slice(t, x, 0, x.size(0));
  part = aten::slice(t, part, 1, x.size(1));
  part = aten::slice(t, part, 2, x.size(2));
  return aten::slice(t, part, 3, size);
}

// stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
Tensor rotate_every_two(Tape& t, const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor even = slice_last(t, x, half);
  const Tensor odd = slice_last(t, x, half);
  Tensor negated = aten::neg(t, odd);
  negated = aten::unsqueeze(t, negated, 4);
  const Tensor column = aten::unsqueeze(t, even, 4);
  const Tensor stacked = aten::cat(t, {&negated, &column}, -1);
  return aten::view(t, stacked, Shape{x.size(0), x.size(1), x.size(2), x.size(3)});
}

// torch.repeat_interleave(table[:, :, None, :], 2, 3)
Tensor repeated(Tape& t, const Context& c, const Tensor& sincos) {
  Tensor out = t.empty(Shape{1, c.sequence, 1, c.shape().rotary_dim}, sincos.dtype());
  t.launch({.name = "clone", .kind = OpKind::copy, .traffic = out.bytes() * 2});
  return out;
}

Tensor apply_rotary_pos_emb(Tape& t, const Context& c, const Tensor& x, const Tensor& sincos) {
  const Tensor sin = repeated(t, c, sincos);
  const Tensor cos = repeated(t, c, sincos);
  const Tensor left = aten::mul(t, x, cos);
  Tensor right = rotate_every_two(t, x);
  right = aten::mul(t, right, sin);
  return aten::add(t, left, right);
}

// What GPTJAttention._get_embed_positions and the gather after it leave in the frame.
struct Positions {
  Tensor embed_positions, repeated_ids, sincos;
};

Positions gather_positions(Tape& t, const Context& c) {
  const std::int64_t width = c.shape().rotary_dim;
  Positions p;
  p.embed_positions = t.empty(Shape{1, c.shape().max_positions, width}, DType::fp32);
  t.launch({.name = "repeat", .kind = OpKind::copy, .traffic = p.embed_positions.bytes() * 2});
  p.repeated_ids = t.empty(Shape{1, c.sequence, width}, DType::int64);
  t.launch({.name = "repeat", .kind = OpKind::copy, .traffic = p.repeated_ids.bytes()});
  const Tensor gathered = t.empty(Shape{1, c.sequence, width}, DType::fp32);
  t.launch({.name = "gather",
            .kind = OpKind::gather,
            .traffic = gathered.bytes() * 2 + p.repeated_ids.bytes()});
  // Since 4.56 .to(key.dtype); before, fp32 tables make queries and keys fp32.
  p.sincos =
      c.acts(ReleaseRule::gptj_casts_positions) ? aten::to(t, gathered, t.dtype()) : gathered;
  return p;
}

struct GptjAttended {
  Tensor output, weights;
};

// GPTJAttention._attn
GptjAttended gptj_eager(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  const Tensor wide_query = aten::to(t, query, DType::fp32);
  const Tensor wide_key = aten::to(t, key, DType::fp32);
  const Tensor columns = aten::transpose(t, wide_key, -1, -2);
  Tensor weights = aten::matmul(t, wide_query, columns);
  weights = aten::scale(t, weights, "div");
  weights = aten::add(t, weights, mask(t, c));
  weights = aten::softmax(t, weights);
  weights = aten::to(t, weights, value.dtype());
  weights = dropout(t, "attn_dropout", weights, c.shape().attention_dropout);
  Tensor output = aten::matmul(t, weights, value);
  return {std::move(output), std::move(weights)};
}

Tensor gptj_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attn", in);
  const TransformerShape& shape = c.shape();
  const Shape heads{c.batch, c.sequence, shape.heads, shape.head_dim};
  Tensor query = linear(t, c, "q_proj", in);
  Tensor key = linear(t, c, "k_proj", in);
  Tensor value = linear(t, c, "v_proj", in);
  query = aten::view(t, query, heads);
  key = aten::view(t, key, heads);
  value = split_heads(t, value, shape.heads);
  const Positions positions = gather_positions(t, c);
  const std::int64_t rotary = shape.rotary_dim, rest = shape.head_dim - rotary;
  // An empty rest gets no gradient from cat.
  const auto passing = [&](const Tensor& x) {
    return slice_last(t, rest == 0 ? x.detached() : x, rest);
  };
  Tensor key_rot = slice_last(t, key, rotary);
  const Tensor key_pass = passing(key);
  Tensor query_rot = slice_last(t, query, rotary);
  const Tensor query_pass = passing(query);
  key_rot = apply_rotary_pos_emb(t, c, key_rot, positions.sincos);
  query_rot = apply_rotary_pos_emb(t, c, query_rot, positions.sincos);
  key = aten::cat(t, {&key_rot, &key_pass}, -1);
  query = aten::cat(t, {&query_rot, &query_pass}, -1);
  key = aten::transpose(t, key, 1, 2);
  query = aten::transpose(t, query, 1, 2);
  update_cache(t, c, key, value);
  GptjAttended attended;
  if (c.attention == Attention::flash) {
    // Flash attention takes no fp32: back to the dtype of the weights.
    query = aten::to(t, query, t.dtype());
    key = aten::to(t, key, t.dtype());
    AttentionArguments arguments;
    arguments.dropout = shape.attention_dropout;
    attended.output = attention(t, c, query, key, value, arguments);
  } else {
    attended = gptj_eager(t, c, query, key, value);
    attended.output = aten::transpose(t, attended.output, 1, 2);
    attended.output = aten::contiguous(t, attended.output);
  }
  attended.output = merge_heads(t, attended.output);
  attended.output = linear(t, c, "out_proj", attended.output);
  attended.output = dropout(t, "resid_dropout", attended.output, shape.hidden_dropout);
  return t.leave(scope, attended.output);
}

Tensor gptj_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor hidden = x;
  const auto scope = t.enter("mlp", hidden);
  hidden = linear(t, c, "fc_in", hidden);
  {
    Tensor in = hidden;
    const auto act = t.enter("act", in);
    hidden = t.leave(act, activation(t, c.shape().activation, in));
  }
  hidden = linear(t, c, "fc_out", hidden);
  hidden = dropout(t, "dropout", hidden, c.shape().hidden_dropout);
  return t.leave(scope, hidden);
}

Tensor gptj_block(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  const Tensor residual = hidden;
  hidden = layer_norm(t, "ln_1", hidden);
  const Tensor attended = gptj_self_attention(t, c, hidden);
  const Tensor fed = gptj_mlp(t, c, hidden);
  const Tensor sum = aten::add(t, attended, fed);
  hidden = aten::add(t, sum, residual);
  return t.leave(scope, hidden);
}

}  // namespace

void build_gptj(GraphAssembler& assembler, const Context& given) {
  Context c = given;
  if (c.attention == Attention::sdpa) c.attention = Attention::eager;
  const TransformerShape& shape = c.shape();
  if (!c.acts(ReleaseRule::early_decoders_described)) {
    assembler.assume("GPT-J layers before transformers 4.45 are described by those of 4.45.");
  }
  assembler.add("GPTJModel inputs", "", [&](Tape& t) {
    const Tensor hidden = token_embedding(t, c, "transformer.wte");
    hold_embeddings(t, c, hidden);
    if (needs_mask(c)) share_mask(t, c);
    return dropout(t, "transformer.drop", hidden, shape.embedding_dropout);
  });
  assembler.add_layers(
      "GPTJBlock", "transformer.h.", shape.layers, [&](Tape& t) { return gptj_block(t, c); });
  add_causal_head(assembler,
                  c,
                  "GPTJForCausalLM head",
                  "transformer.ln_f",
                  {"lm_head",
                   "transformer.wte",
                   loss_where(c, ReleaseRule::older_models_share_loss, LossCode::float_in_model),
                   true});
  if (!c.acts(ReleaseRule::gptj_drops_triangles)) add_triangular_masks(assembler, c, "attn");
  // attn.embed_positions, fp32: moved to the GPU by every layer's first forward
  assembler.add_buffers(
      Bytes::of(detail::checked_product(shape.max_positions, shape.rotary_dim) * 4) * shape.layers);
}

}  // namespace zeroplan::hf
