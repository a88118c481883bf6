// modeling_falcon: one key and value head for all queries (7B), grouped ones copied for every query
// head and two norms (40B, 180B), or ALiBi in the mask and a sequential residual (RW).
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

bool falcon_alibi(const Context& c) { return c.shape().position == PositionKind::alibi; }

// The mask is part of the attention wherever it is not the plain causal one.
bool masked(const Context& c) { return needs_mask(c) || falcon_alibi(c); }

// ALiBi is filled into the mask: then it has one row of squares a head.
Tensor falcon_mask(Tape& t, const Context& c) {
  const std::int64_t heads = falcon_alibi(c) ? c.shape().heads : 1;
  const Shape sizes{c.batch, heads, c.sequence, c.sequence};
  return t.shared(static_cast<std::int32_t>(Slot::mask), sizes, t.dtype());
}

struct FalconHeads {
  Tensor query, key, value;  // (b, s, heads, d)
};

// _split_heads of the new decoder: [..., :-2], [..., [-2]] and [..., [-1]] of every group, keys and
// values broadcast to the queries, and all three flattened, which copies them.
FalconHeads split_groups(Tape& t, const Context& c, const Tensor& fused) {
  const TransformerShape& shape = c.shape();
  const std::int64_t group = shape.heads / shape.kv_heads;
  const Tensor qkv =
      aten::view(t, fused, Shape{c.batch, c.sequence, shape.kv_heads, group + 2, shape.head_dim});
  const auto leading = [&] {  // qkv[:, :, :, ...]: each ":" is a slice
    Tensor out = aten::slice(t, qkv, 0, c.batch);
    out = aten::slice(t, out, 1, c.sequence);
    return aten::slice(t, out, 2, shape.kv_heads);
  };
  FalconHeads heads;
  heads.query = leading();
  heads.query = aten::slice(t, heads.query, 3, group);
  const auto single = [&] {
    const Tensor all = leading();
    return aten::index_one(t, all, 3);
  };
  heads.key = single();
  heads.value = single();
  const Shape sizes{c.batch, c.sequence, shape.kv_heads, group, shape.head_dim};
  heads.key = aten::expand(t, heads.key, sizes);
  heads.value = aten::expand(t, heads.value, sizes);
  const Shape flat{c.batch, c.sequence, shape.heads, shape.head_dim};
  // a list comprehension: the unflattened tensors live until all three are done
  const Tensor query = aten::reshape(t, heads.query, flat);
  const Tensor key = aten::reshape(t, heads.key, flat);
  const Tensor value = aten::reshape(t, heads.value, flat);
  return {query, key, value};
}

FalconHeads split_plain(Tape& t, const Context& c, const Tensor& fused) {
  const TransformerShape& shape = c.shape();
  if (shape.kv_heads == 1 && shape.heads > 1) {
    const Tensor all =
        aten::view(t, fused, Shape{c.batch, c.sequence, shape.heads + 2, shape.head_dim});
    const auto single = [&] {  // [..., [-2], :]: the slice first, then the index
      const Tensor whole = aten::slice(t, all, 3, shape.head_dim);
      return aten::index_one(t, whole, 2);
    };
    FalconHeads heads;
    heads.query = aten::slice(t, all, 2, shape.heads);
    heads.query = aten::slice(t, heads.query, 3, shape.head_dim);
    heads.key = single();
    heads.value = single();
    return heads;
  }
  const Tensor all =
      aten::view(t, fused, Shape{c.batch, c.sequence, shape.heads, 3, shape.head_dim});
  const auto one = [&] {  // [..., i, :]
    const Tensor part = aten::select(t, all, -2);
    return aten::slice(t, part, -1, shape.head_dim);
  };
  FalconHeads heads;
  heads.query = one();
  heads.key = one();
  heads.value = one();
  return heads;
}

bool new_decoder(const Tape& t, const Context& c) {
  if (t.has_parameter("ln_attn", "weight")) return true;
  return c.shape().kv_heads > 1 && c.shape().kv_heads < c.shape().heads;
}

// (scores + mask) in the compute dtype; no dropout without ALiBi.
Tensor eager(Tape& t, const Context& c, const FalconHeads& h) {
  const Tensor columns = aten::transpose(t, h.key, -1, -2);
  Tensor scores = aten::matmul(t, h.query, columns);
  scores = aten::scale_in_place(t, scores, "div_");
  {
    const Tensor sum = aten::add(t, scores, falcon_mask(t, c));
    scores = aten::softmax(t, sum);
  }
  return aten::matmul(t, scores, h.value);
}

// With ALiBi: fp32 scores plus alibi, scaled in place, plus the mask, softmax in the compute dtype.
// The variables of the frame keep the scores of every stage.
Tensor eager_alibi(Tape& t, const Context& c, const FalconHeads& h) {
  const Tensor columns = aten::transpose(t, h.key, -1, -2);
  const Tensor product = aten::matmul(t, h.query, columns);
  const Tensor scores = aten::to(t, product, DType::fp32);
  const Tensor alibi_row = t.shared(static_cast<std::int32_t>(Slot::alibi),
                                    Shape{c.batch, c.shape().heads, 1, c.sequence},
                                    t.dtype());
  Tensor logits = aten::add(t, scores, alibi_row);
  logits = aten::scale_in_place(t, logits, "mul_");
  Tensor probabilities;
  {
    const Tensor sum = aten::add(t, logits, falcon_mask(t, c));
    probabilities = aten::softmax(t, sum, t.dtype());
  }
  probabilities = dropout(t, "attention_dropout", probabilities, c.shape().attention_dropout);
  Tensor out = aten::matmul(t, probabilities, h.value);
  out = aten::transpose(t, out, 1, 2);
  out = merge_heads(t, out);
  return matmul_linear(t, c, "dense", out);
}

// F.scaled_dot_product_attention with the keys as they are: one head for all queries goes to the
// math backend.
Tensor fused_attention(Tape& t, const Context& c, const FalconHeads& h) {
  const bool with_mask = masked(c);
  aten::Sdpa options;
  options.backend = sdpa_backend(c, with_mask, h.query.size(3), h.key.size(1) == h.query.size(1));
  options.causal = !with_mask;
  options.dropout = falcon_alibi(c) ? c.shape().attention_dropout : 0.0;
  options.deterministic = c.options.deterministic;
  options.math_in_fp32 = c.options.torch_acts(ReleaseRule::math_attention_in_fp32);
  const Tensor bias = with_mask ? falcon_mask(t, c) : Tensor();
  return aten::scaled_dot_product_attention(t, h.query, h.key, h.value, bias, options);
}

Tensor attend(Tape& t, const Context& c, FalconHeads& h) {
  if (c.attention == Attention::flash) {
    AttentionArguments arguments;
    arguments.dropout = c.shape().attention_dropout;
    const Tensor out = attention(t, c, h.query, h.key, h.value, arguments);
    return merge_heads(t, out);
  }
  if (c.attention == Attention::sdpa && masked(c)) {
    h.query = aten::contiguous(t, h.query);
    h.key = aten::contiguous(t, h.key);
    h.value = aten::contiguous(t, h.value);
  }
  const bool own = c.attention == Attention::eager;
  Tensor out = own ? eager(t, c, h) : fused_attention(t, c, h);
  out = aten::transpose(t, out, 1, 2);
  return merge_heads(t, out);
}

Tensor self_attention(Tape& t, const Context& c, bool grouped, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attention", in);
  // fused_qkv stays a variable of the frame
  const Tensor fused = matmul_linear(t, c, "query_key_value", in);
  FalconHeads h = grouped ? split_groups(t, c, fused) : split_plain(t, c, fused);
  const auto to_front = [&](Tensor& x) {  // .transpose(1, 2).reshape(b, heads, s, d)
    x = aten::transpose(t, x, 1, 2);
    x = aten::view(t, x, Shape{x.size(0), x.size(1), x.size(2), x.size(3)});
  };
  to_front(h.query);
  to_front(h.key);
  to_front(h.value);
  RotaryTables tables;
  if (!falcon_alibi(c)) {
    tables = layer_rotary_tables(t, c);
    const Tensor query = apply_rotary(t, h.query, tables);
    const Tensor key = apply_rotary(t, h.key, tables);
    h.query = query;
    h.key = key;
  }
  update_cache(t, c, h.key, h.value);
  const bool own_output = falcon_alibi(c) && c.attention == Attention::eager;
  Tensor out;
  if (own_output) {
    out = eager_alibi(t, c, h);
  } else {
    out = attend(t, c, h);
    out = matmul_linear(t, c, "dense", out);
  }
  return t.leave(scope, out);
}

Tensor falcon_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor hidden = x;
  const auto scope = t.enter("mlp", hidden);
  hidden = matmul_linear(t, c, "dense_h_to_4h", hidden);
  {
    Tensor in = hidden;
    const auto act = t.enter("act", in);
    hidden = t.leave(act, activation(t, c.shape().activation, in));
  }
  hidden = matmul_linear(t, c, "dense_4h_to_h", hidden);
  return t.leave(scope, hidden);
}

Tensor falcon_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  const bool two_norms = t.has_parameter("ln_attn", "weight");
  const bool sequential = t.has_parameter("post_attention_layernorm", "weight");
  Tensor residual = hidden;
  const Tensor attention_in = layer_norm(t, two_norms ? "ln_attn" : "input_layernorm", hidden);
  Tensor mlp_in = two_norms ? layer_norm(t, "ln_mlp", hidden) : attention_in;
  const Tensor attended = self_attention(t, c, new_decoder(t, c), attention_in);
  if (sequential) {
    const Tensor dropped = aten::dropout(t, attended, c.shape().attention_dropout);
    residual = aten::add(t, residual, dropped);
    mlp_in = layer_norm(t, "post_attention_layernorm", residual);
  }
  Tensor fed = falcon_mlp(t, c, mlp_in);
  if (!sequential) fed = aten::add_in_place(t, fed, attended);
  const Tensor dropped = aten::dropout(t, fed, c.shape().hidden_dropout);
  return t.leave(scope, aten::add(t, residual, dropped));
}

// build_alibi_tensor, then _update_causal_mask fills the causal mask into it.
void share_alibi_mask(Tape& t, const Context& c) {
  const std::int64_t heads = c.shape().heads, s = c.sequence;
  Tensor alibi_row = t.empty(Shape{c.batch, heads, 1, s}, t.dtype());
  t.launch({.name = "mul", .traffic = alibi_row.bytes()});
  Tensor causal = t.empty(Shape{c.batch, 1, s, s}, t.dtype());
  t.launch({.name = "clone", .kind = OpKind::copy, .traffic = causal.bytes() * 2, .kernels = 4});
  const Tensor scaled = aten::scale(t, alibi_row, "div");
  const Tensor hidden_keys = t.empty(Shape{c.batch, 1, s, s}, DType::boolean);
  t.launch({.name = "lt", .traffic = causal.bytes() + hidden_keys.bytes()});
  Tensor whole = t.empty(Shape{c.batch, heads, s, s}, t.dtype());
  t.launch({.name = "masked_fill", .traffic = whole.bytes() + hidden_keys.bytes()});
  t.share(static_cast<std::int32_t>(Slot::alibi), alibi_row);
  t.share(static_cast<std::int32_t>(Slot::mask), whole);
}

}  // namespace

void build_falcon(GraphAssembler& assembler, const Context& c) {
  if (falcon_alibi(c) && c.attention == Attention::flash) {
    throw InputError(Diagnostic{"",
                                "/workload/attention",
                                "eager or sdpa: FalconFlashAttention2 refuses ALiBi",
                                "flash",
                                "use sdpa"});
  }
  if (!c.acts(ReleaseRule::early_decoders_described)) {
    assembler.assume("Falcon layers before transformers 4.45 are described by those of 4.45.");
  }
  assembler.add("FalconModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "transformer.word_embeddings");
    hold_embeddings(t, c, hidden);
    if (falcon_alibi(c)) {
      share_alibi_mask(t, c);
    } else {
      if (needs_mask(c)) share_mask(t, c);
      if (shares_rotary_tables(c)) share_rotary_tables(t, c);
    }
    return hidden;
  });
  assembler.add_layers("FalconDecoderLayer", "transformer.h.", c.shape().layers, [&](Tape& t) {
    return falcon_layer(t, c);
  });
  add_causal_head(assembler,
                  c,
                  "FalconForCausalLM head",
                  "transformer.ln_f",
                  {"lm_head",
                   "transformer.word_embeddings",
                   loss_where(c, ReleaseRule::older_models_share_loss, LossCode::bf16_in_model)});
}

}  // namespace zeroplan::hf
