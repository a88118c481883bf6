// modeling_gpt_bigcode: GPT-2 with linear layers and one key and value head for all queries.
// Through 4.53 the class has attention code of its own; since 4.54 it calls the shared interface.
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"

namespace zeroplan::hf {

namespace {

bool own_code(const Context& c) { return !c.acts(ReleaseRule::gpt_bigcode_rewritten); }
bool multi_query(const Context& c) { return c.shape().kv_heads == 1; }

// The class's own mask always exists: bool for its eager code, floats for SDPA.
Tensor own_mask(Tape& t, const Context& c) {
  const std::int64_t b = c.batch, s = c.sequence;
  const auto slot = static_cast<std::int32_t>(Slot::mask);
  if (c.attention == Attention::sdpa) {
    return t.shared(slot, Shape{b, 1, s, s}, t.dtype());
  }
  return multi_query(c) ? t.shared(slot, Shape{b, s, 1, s}, DType::boolean)
                        : t.shared(slot, Shape{b, 1, s, s}, DType::boolean);
}

void share_own_mask(Tape& t, const Context& c) {
  const Shape square{c.batch, 1, c.sequence, c.sequence};
  Tensor allowed = t.empty(square, DType::boolean);
  t.launch({.name = "mul", .traffic = allowed.bytes() * 2});
  const auto slot = static_cast<std::int32_t>(Slot::mask);
  if (c.attention != Attention::sdpa) {
    t.share(slot, allowed);
    return;
  }
  Tensor floats = t.empty(square, t.dtype());
  t.launch({.name = "where", .traffic = floats.bytes() + allowed.bytes()});
  // AttentionMaskConverter._unmask_unattended
  const Tensor hidden = t.empty(square, DType::boolean);
  t.launch({.name = "eq", .traffic = floats.bytes() + hidden.bytes()});
  Tensor whole = t.empty(square, t.dtype());
  t.launch({.name = "mul", .traffic = floats.bytes() + whole.bytes()});
  t.share(slot, whole);
}

// upcast_masked_softmax, compiled by torch.jit.script. TorchScript's autodiff formula of softmax
// keeps the input beside the output, for its dtype.
Tensor upcast_masked_softmax(Tape& t, const Tensor& scores, const Tensor& allowed) {
  Tensor x = aten::to(t, scores, DType::fp32);
  x = aten::scale(t, x);
  x = aten::where_scalar(t, allowed, x);
  if (t.trains({&x})) {
    Tensor kept = t.alias(x, x.shape(), "");
    t.record({&kept}, {&x}, [saved = t.save(x)](Backward& b) { b.give(0, b.gradient()); });
    x = kept;
  }
  x = aten::softmax(t, x);
  return aten::to(t, x, scores.dtype());
}

struct BigcodeAttended {
  Tensor output, weights;
};

// GPTBigCodeAttention._attn; query is (b, s, heads * d) with one key head, else (b, heads, s, d).
BigcodeAttended bigcode_eager(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  const TransformerShape& shape = c.shape();
  const std::int64_t b = c.batch, s = c.sequence, a = shape.heads, d = shape.head_dim;
  const bool one_head = multi_query(c);
  const Shape rows = one_head ? Shape{b, s * a, s} : Shape{b * a, s, s};
  const Tensor rows_of_query =
      aten::reshape(t, query, one_head ? Shape{b, s * a, d} : Shape{b * a, s, d});
  const Tensor columns =
      one_head ? aten::transpose(t, key, -1, -2)
               : aten::reshape(t, aten::transpose(t, key, -1, -2), Shape{b * a, d, s});
  Tensor weights = t.empty(rows, query.dtype());
  weights = aten::baddbmm(t, weights, rows_of_query, columns);
  weights = aten::view(t, weights, one_head ? Shape{b, s, a, s} : Shape{b, a, s, s});
  if (query.dtype() != DType::fp32) {
    weights = upcast_masked_softmax(t, weights, own_mask(t, c));
  } else {
    weights = aten::where_scalar(t, own_mask(t, c), weights);
    weights = aten::softmax(t, weights);
  }
  weights = dropout(t, "attn_dropout", weights, shape.attention_dropout);
  Tensor output;
  if (one_head) {
    const Tensor flat = aten::view(t, weights, rows);
    output = aten::bmm(t, flat, value);
    output = aten::view(t, output, Shape{b, s, a * d});
  } else {
    output = aten::matmul(t, weights, value);
  }
  return {std::move(output), std::move(weights)};
}

// GPTBigCodeSdpaAttention._attn: the one head expanded, always with a mask.
Tensor own_sdpa(Tape& t, const Context& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const TransformerShape& shape = c.shape();
  const Shape each{c.batch, shape.heads, c.sequence, shape.head_dim};
  Tensor query = q, key = k, value = v;
  if (multi_query(c)) {
    query = split_heads(t, q, shape.heads);
    key = aten::unsqueeze(t, k, 1);
    value = aten::unsqueeze(t, v, 1);
    if (c.options.torch_acts(ReleaseRule::sdpa_takes_strided)) {
      key = aten::expand(t, key, each);
      value = aten::expand(t, value, each);
    }
  } else {
    query = aten::contiguous(t, q);
    key = aten::contiguous(t, k);
    value = aten::contiguous(t, v);
  }
  aten::Sdpa options;
  options.backend = sdpa_backend(c, true, shape.head_dim, key.size(1) == query.size(1));
  options.causal = false;
  options.dropout = shape.attention_dropout;
  options.deterministic = c.options.deterministic;
  options.math_in_fp32 = c.options.torch_acts(ReleaseRule::math_attention_in_fp32);
  Tensor out = aten::scaled_dot_product_attention(t, query, key, value, own_mask(t, c), options);
  if (!multi_query(c)) return out;
  out = aten::transpose(t, out, 1, 2);
  return merge_heads(t, out);
}

Tensor own_flash(Tape& t, const Context& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  AttentionArguments arguments;
  arguments.dropout = c.shape().attention_dropout;
  if (!multi_query(c)) {
    const Tensor out = attention(t, c, q, k, v, arguments);
    return merge_heads(t, out);
  }
  const Tensor rows =
      aten::reshape(t, q, Shape{c.batch, c.sequence, c.shape().heads, c.shape().head_dim});
  const Tensor query = aten::transpose(t, rows, 1, 2);
  const Tensor key = aten::unsqueeze(t, k, 1);
  const Tensor value = aten::unsqueeze(t, v, 1);
  const Tensor out = attention(t, c, query, key, value, arguments);
  return merge_heads(t, out);
}

// GPTBigCodeAttention.forward through 4.53
Tensor own_attention(Tape& t, const Context& c, const Tensor& in) {
  const TransformerShape& shape = c.shape();
  const std::int64_t d = shape.head_dim;
  Tensor query, key_value;
  {
    Tensor fused = linear(t, c, "c_attn", in);
    std::vector<Tensor> parts;
    if (multi_query(c)) {
      parts = aten::split(t, fused, {shape.hidden, 2 * d}, 2);
    } else {
      fused = aten::view(t, fused, Shape{c.batch, c.sequence, shape.heads, 3 * d});
      fused = aten::transpose(t, fused, 1, 2);
      parts = aten::split(t, fused, {d, 2 * d}, 3);
    }
    query = parts[0];
    key_value = parts[1];
  }
  if (c.options.use_cache && c.options.checkpointing == ActivationCheckpointing::none)
    t.hold(key_value);
  const std::vector<Tensor> pair = aten::split(t, key_value, {d, d}, -1);
  BigcodeAttended attended;
  switch (c.attention) {
    case Attention::eager:
      attended = bigcode_eager(t, c, query, pair[0], pair[1]);
      break;
    case Attention::sdpa:
      attended.output = own_sdpa(t, c, query, pair[0], pair[1]);
      break;
    case Attention::flash:
      attended.output = own_flash(t, c, query, pair[0], pair[1]);
      break;
  }
  if (!multi_query(c) && c.attention != Attention::flash) {
    attended.output = aten::transpose(t, attended.output, 1, 2);
    attended.output = merge_heads(t, attended.output);
  }
  attended.output = linear(t, c, "c_proj", attended.output);
  return dropout(t, "resid_dropout", attended.output, shape.hidden_dropout);
}

// GPTBigCodeAttention.forward since 4.54
Tensor interface_attention(Tape& t, const Context& c, const Tensor& in) {
  const TransformerShape& shape = c.shape();
  const std::int64_t d = shape.head_dim;
  Tensor query, key, value;
  {
    Tensor fused = linear(t, c, "c_attn", in);
    std::vector<Tensor> parts;
    if (multi_query(c)) {
      fused = aten::unsqueeze(t, fused, 1);
      parts = aten::split(t, fused, {shape.hidden, d, d}, 3);
      query = aten::view(t, parts[0], Shape{c.batch, c.sequence, shape.heads, d});
      query = aten::transpose(t, query, 1, 2);
    } else {
      fused = aten::view(t, fused, Shape{c.batch, c.sequence, shape.heads, 3 * d});
      fused = aten::transpose(t, fused, 1, 2);
      parts = aten::split(t, fused, {d, d, d}, 3);
      query = parts[0];
    }
    key = parts[1];
    value = parts[2];
  }
  update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  arguments.shares_code = ReleaseRule::gpt_bigcode_rewritten;
  Tensor out = attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "c_proj", out);
  return dropout(t, "resid_dropout", out, shape.hidden_dropout);
}

Tensor bigcode_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("attn", in);
  return t.leave(scope, own_code(c) ? own_attention(t, c, in) : interface_attention(t, c, in));
}

Tensor bigcode_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor hidden = x;
  const auto scope = t.enter("mlp", hidden);
  hidden = linear(t, c, "c_fc", hidden);
  {
    Tensor in = hidden;
    const auto act = t.enter("act", in);
    hidden = t.leave(act, activation(t, c.shape().activation, in));
  }
  hidden = linear(t, c, "c_proj", hidden);
  hidden = dropout(t, "dropout", hidden, c.shape().hidden_dropout);
  return t.leave(scope, hidden);
}

Tensor bigcode_block(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  Tensor residual = hidden;
  hidden = layer_norm(t, "ln_1", hidden);
  const Tensor attended = bigcode_self_attention(t, c, hidden);
  hidden = aten::add(t, attended, residual);
  residual = hidden;
  hidden = layer_norm(t, "ln_2", hidden);
  const Tensor fed = bigcode_mlp(t, c, hidden);
  hidden = aten::add(t, residual, fed);
  return t.leave(scope, hidden);
}

}  // namespace

void build_gpt_bigcode(GraphAssembler& assembler, const Context& c) {
  const TransformerShape& shape = c.shape();
  if (own_code(c) && c.attention == Attention::eager) {
    assembler.assume(
        "GPTBigCode's scripted softmax is described by its operations one by one, without "
        "TorchScript's fusion.");
  }
  const bool own = own_code(c) && c.attention != Attention::flash;
  const auto beside = [&](Tape& t) {
    if (own) {
      share_own_mask(t, c);
    } else if (needs_mask(c)) {
      share_mask(t, c);
    }
  };
  assembler.set_hidden(c.hidden_shape(), beside);
  assembler.add("GPTBigCodeModel inputs", "", [&](Tape& t) {
    if (own) share_own_mask(t, c);
    const Tensor tokens = token_embedding(t, c, "transformer.wte");
    hold_embeddings(t, c, tokens);
    const auto scope = t.enter("transformer.wpe");
    // Through 4.53 positions are counted in the attention mask, row by row.
    const std::int64_t rows = own_code(c) ? c.batch : 1;
    Tensor positions = aten::embedding(t, Shape{rows, c.sequence}, t.module_parameter("weight"));
    positions = t.leave(scope, positions);
    hold_variable(t, c, Slot::positions, positions);
    const Tensor hidden = aten::add(t, tokens, positions);
    if (!own && needs_mask(c)) share_mask(t, c);
    return dropout(t, "transformer.drop", hidden, shape.embedding_dropout);
  });
  assembler.add_layers("GPTBigCodeBlock", "transformer.h.", shape.layers, [&](Tape& t) {
    return bigcode_block(t, c);
  });
  keep_logits(assembler, c);
  add_causal_head(assembler,
                  c,
                  "GPTBigCodeForCausalLM head",
                  "transformer.ln_f",
                  {"lm_head",
                   "transformer.wte",
                   loss_where(c, ReleaseRule::older_models_share_loss, LossCode::bf16_in_model)});
  // transformer.bias: torch.tril(ones((max_positions, max_positions), bool)), once a model
  assembler.add_buffers(
      Bytes::of(detail::checked_product(shape.max_positions, shape.max_positions)));
}

}  // namespace zeroplan::hf
