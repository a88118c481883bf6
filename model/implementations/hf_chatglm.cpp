// modeling_chatglm.py of THUDM/chatglm2-6b and chatglm3-6b: hidden states are (s, b, h), queries
// and a few key groups come from one projection, half of each head turns, gate and up projection
// are one matrix. With torch 2 attention is F.scaled_dot_product_attention, whatever is asked for.
#include <utility>

#include "base/diagnostic.hpp"
#include "model/implementations/families.hpp"
#include "model/implementations/hf_scores.hpp"

namespace zeroplan::hf {

namespace {

Shape rows_shape(const Context& c) { return Shape{c.sequence, c.batch, c.shape().hidden}; }

// One of cos, sin a pair of coordinates: (s, b, rotary / 2, 2)
Shape chatglm_table_shape(const Context& c) {
  return Shape{c.sequence, c.batch, c.shape().rotary_dim / 2, 2};
}

// RMSNorm.forward: x * rsqrt(mean(float(x)^2) + eps) is fp32, and so is its product with the
// weight, which is rounded last.
Tensor rms(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor out;
  {
    Tensor variance = aten::to(t, in, DType::fp32);
    variance = aten::pow(t, variance, 2);
    variance = aten::mean_last(t, variance);
    Tensor factor = aten::shift(t, variance);
    factor = aten::rsqrt(t, factor);
    const Tensor hidden = aten::mul(t, in, factor);
    factor = Tensor();
    out = aten::mul(t, t.module_parameter("weight"), hidden);
    out = aten::to(t, out, x.dtype());
  }
  return t.leave(scope, out);
}

Tensor chatglm_norm(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  return c.shape().norm == NormKind::rms_norm ? rms(t, module, x) : layer_norm(t, module, x);
}

// apply_rotary_pos_emb, a scripted function: its autodiff keeps what eager autograd would, the
// tables. x is (s, b, heads, d).
Tensor rotate_chatglm(Tape& t, const Context& c, const Tensor& x, const Tensor& tables) {
  const std::int64_t turning = c.shape().rotary_dim, dim = x.size(3);
  const Tensor first = aten::slice(t, x, -1, turning);
  const Tensor passing = aten::slice(t, x, -1, dim - turning);
  const Tensor pairs =
      aten::reshape(t, first, Shape{c.sequence, c.batch, x.size(2), turning / 2, 2});
  const Tensor cache = aten::view(t, tables, Shape{c.sequence, c.batch, 1, turning / 2, 2});
  // a cos - b sin, b cos + a sin; a subtraction costs what an addition does
  const auto product = [&] {
    const Tensor part = aten::select(t, pairs, -1);
    const Tensor table = aten::select(t, cache, -1);
    return aten::mul(t, part, table);
  };
  const auto combined = [&](std::string_view) {
    const Tensor left = product();
    const Tensor right = product();
    return aten::add(t, left, right);
  };
  const Tensor real = combined("sub");
  const Tensor imaginary = combined("add");
  const Tensor real_column = aten::unsqueeze(t, real, 4);
  const Tensor imaginary_column = aten::unsqueeze(t, imaginary, 4);
  Tensor turned = aten::cat(t, {&real_column, &imaginary_column}, -1);
  turned = aten::view(t, turned, Shape{c.sequence, c.batch, x.size(2), turning});
  return aten::cat(t, {&turned, &passing}, -1);
}

// unsqueeze(-2).expand(.., heads / groups, ..).contiguous().view(s, b, heads, d)
Tensor repeat_groups(Tape& t, const Context& c, const Tensor& x) {
  const std::int64_t heads = c.shape().heads, groups = x.size(2), dim = x.size(3);
  if (groups == heads) return x;
  Tensor out = aten::unsqueeze(t, x, 3);
  out = aten::expand(t, out, Shape{c.sequence, c.batch, groups, heads / groups, dim});
  out = aten::contiguous(t, out);
  return aten::view(t, out, Shape{c.sequence, c.batch, heads, dim});
}

// A padded batch: every layer inverts the mask, and the kernel turns it into numbers.
Tensor layer_mask(Tape& t, const Context& c) {
  const Shape square{c.batch, 1, c.sequence, c.sequence};
  const Tensor inverted = t.empty(square, DType::boolean);
  t.launch({.name = "bitwise_not", .traffic = inverted.bytes() * 2});
  Tensor numbers = t.empty(square, t.dtype());
  t.launch({.name = "masked_fill", .traffic = numbers.bytes() * 2 + inverted.bytes()});
  return numbers;
}

// CoreAttention.forward of torch 2: (s, b, heads, d) -> (b, heads, s, d) and back
Tensor core_attention(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  const auto scope = t.enter("core_attention");
  const auto permuted = [&](const Tensor& x) {
    const Tensor heads_first = aten::transpose(t, x, 0, 1);
    return aten::transpose(t, heads_first, 1, 2);
  };
  Tensor context;
  {
    const Tensor q = permuted(query);
    const Tensor k = permuted(key);
    const Tensor v = permuted(value);
    const bool padded = c.options.mask == MaskKind::padded;
    const Tensor mask = padded ? layer_mask(t, c) : Tensor();
    aten::Sdpa options;
    options.backend = sdpa_backend(c, padded, c.shape().head_dim, true);
    options.causal = !padded;
    options.deterministic = c.options.deterministic;
    options.math_in_fp32 = c.options.torch_acts(ReleaseRule::math_attention_in_fp32);
    options.guards_in_place = c.options.torch_acts(ReleaseRule::safe_softmax_in_place);
    context = aten::scaled_dot_product_attention(t, q, k, v, mask, options);
  }
  context = aten::transpose(t, context, 1, 2);
  context = aten::transpose(t, context, 0, 1);
  context =
      aten::reshape(t, context, Shape{c.sequence, c.batch, c.shape().heads * c.shape().head_dim});
  return t.leave(scope, context);
}

Tensor chatglm_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attention", in);
  const TransformerShape& shape = c.shape();
  const std::int64_t dim = shape.head_dim;
  Tensor out;
  {
    const Tensor fused = linear(t, c, "query_key_value", in);
    const Tensor tables =
        t.shared(static_cast<std::int32_t>(Slot::cos), chatglm_table_shape(c), t.dtype());
    const std::vector<Tensor> parts =
        aten::split(t, fused, {shape.heads * dim, shape.kv_heads * dim, shape.kv_heads * dim}, 2);
    const auto heads_of = [&](const Tensor& part, std::int64_t heads) {
      return aten::view(t, part, Shape{c.sequence, c.batch, heads, dim});
    };
    Tensor query = heads_of(parts[0], shape.heads);
    Tensor key = heads_of(parts[1], shape.kv_heads);
    Tensor value = heads_of(parts[2], shape.kv_heads);
    query = rotate_chatglm(t, c, query, tables);
    key = rotate_chatglm(t, c, key, tables);
    if (c.options.use_cache && c.options.checkpointing == ActivationCheckpointing::none) {
      t.hold(key);  // kv_cache = (key_layer, value_layer)
      t.hold(value);
    }
    key = repeat_groups(t, c, key);
    value = repeat_groups(t, c, value);
    const Tensor context = core_attention(t, c, query, key, value);
    out = linear(t, c, "dense", context);
  }
  return t.leave(scope, out);
}

Tensor chatglm_mlp(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("mlp", in);
  const std::int64_t inner = c.shape().intermediate;
  Tensor out;
  {
    Tensor hidden = linear(t, c, "dense_h_to_4h", in);
    {
      const std::vector<Tensor> halves = aten::split(t, hidden, {inner, inner}, 2);
      const Tensor gate = aten::silu(t, halves[0]);
      hidden = aten::mul(t, gate, halves[1]);
    }
    out = linear(t, c, "dense_4h_to_h", hidden);
  }
  return t.leave(scope, out);
}

Tensor chatglm_block(Tape& t, const Context& c) {
  Tensor hidden = t.input(rows_shape(c));
  const auto scope = t.enter("", hidden);
  const double p = c.shape().hidden_dropout;
  Tensor out;
  {
    Tensor normed = chatglm_norm(t, c, "input_layernorm", hidden);
    const Tensor attended = chatglm_self_attention(t, c, normed);
    Tensor sum = aten::dropout(t, attended, p);
    sum = aten::add(t, hidden, sum);
    normed = chatglm_norm(t, c, "post_attention_layernorm", sum);
    const Tensor fed = chatglm_mlp(t, c, normed);
    out = aten::dropout(t, fed, p);
    out = aten::add(t, sum, out);
  }
  return t.leave(scope, out);
}

void share_rotary_positions(Tape& t, const Context& c) {
  const auto scope = t.enter("transformer.rotary_pos_emb");
  const Shape whole{c.shape().max_positions, c.shape().rotary_dim / 2, 2};
  const Tensor all = t.empty(whole, t.dtype());
  t.launch({.name = "stack", .kind = OpKind::copy, .traffic = all.bytes() * 2, .kernels = 4});
  const Tensor tables = t.empty(chatglm_table_shape(c), t.dtype());
  t.launch({.name = "index", .kind = OpKind::gather, .traffic = tables.bytes() * 2});
  t.share(static_cast<std::int32_t>(Slot::cos), tables);
  t.leave(scope, Tensor());
}

Tensor inputs(Tape& t, const Context& c) {
  Tensor hidden;
  {
    const Tensor words = token_embedding(t, c, "transformer.embedding.word_embeddings");
    const Tensor rows = aten::transpose(t, words, 0, 1);
    hidden = aten::contiguous(t, rows);
  }
  hold_embeddings(t, c, hidden);
  share_rotary_positions(t, c);
  return hidden;
}

// logits.to(float32), shifted copy, CrossEntropyLoss; the output object gets them in the model's
// dtype again.
Tensor chatglm_head(Tape& t, const Context& c) {
  Tensor hidden = t.input(rows_shape(c));
  if (t.parameter("transformer.encoder.final_layernorm.weight").defined()) {
    hidden = chatglm_norm(t, c, "transformer.encoder.final_layernorm", hidden);
  }
  t.set_category(MemoryCategory::logits);
  Tensor logits = linear(t, c, "transformer.output_layer", hidden);
  {
    const Tensor rows = aten::transpose(t, logits, 0, 1);
    logits = aten::contiguous(t, rows);
  }
  // Without labels the model computes no loss.
  if (c.options.scores.code != TokenScores::none) {
    return scored_logits_loss(t, c, std::move(logits));
  }
  logits = aten::to(t, logits, DType::fp32);
  const Tensor kept = aten::slice(t, logits, 1, c.sequence - 1);
  const Tensor shifted = aten::clone(t, kept);
  const Tensor rows =
      aten::view(t, shifted, Shape{c.batch * (c.sequence - 1), c.shape().vocabulary});
  Tensor loss;
  {
    const Tensor log_probabilities = aten::log_softmax(t, rows);
    loss = aten::nll_loss(t, log_probabilities);
  }
  logits = aten::to(t, logits, t.dtype());
  t.hold(logits);
  return aten::to(t, loss, t.dtype());
}

}  // namespace

void build_chatglm(GraphAssembler& assembler, const Context& c) {
  if (!c.options.torch_acts(ReleaseRule::has_sdpa)) {
    throw InputError(Diagnostic{"",
                                "/software/torch",
                                "2.0 or newer",
                                "a torch before F.scaled_dot_product_attention",
                                ""});
  }
  if (c.attention != Attention::sdpa) {
    assembler.assume("ChatGLM's code calls scaled_dot_product_attention, whatever is asked for.");
  }
  assembler.assume(
      "ChatGLM layers are those of ChatGLM2 and ChatGLM3; GLM-4-9B's code copies the "
      "attention output once more.");
  assembler.set_hidden(rows_shape(c), [&](Tape& t) { share_rotary_positions(t, c); });
  assembler.add("ChatGLMModel inputs", "", [&](Tape& t) { return inputs(t, c); });
  assembler.add_layers("GLMBlock", "transformer.encoder.layers.", c.shape().layers, [&](Tape& t) {
    return chatglm_block(t, c);
  });
  keep_logits(assembler, c);
  assembler.add(
      "ChatGLMForConditionalGeneration head", "", [&](Tape& t) { return chatglm_head(t, c); });
}

}  // namespace zeroplan::hf
