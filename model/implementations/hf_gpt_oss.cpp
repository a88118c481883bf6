// modeling_gpt_oss of transformers 5.17: attention with sinks, written out; two masks; experts with
// biases and a gate of their own.
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"
#include "model/implementations/hf_moe.hpp"

namespace zeroplan::hf {

namespace {

Shape gpt_oss_table_shape(const Context& c) {
  return Shape{1, c.sequence, c.shape().rotary_dim / 2};
}

// GptOssRotaryEmbedding.forward (no_grad): tables of half a head, in fp32, then in the model's
// type.
void share_gpt_oss_tables(Tape& t, const Context& c) {
  const auto scope = t.enter("model.rotary_emb");
  const Tensor angles = t.empty(gpt_oss_table_shape(c), DType::fp32);
  t.launch({.name = "bmm", .traffic = angles.bytes(), .library = Library::cublas});
  const auto make = [&](std::string_view name) {
    Tensor values = t.empty(gpt_oss_table_shape(c), DType::fp32);
    t.launch({.name = name, .traffic = values.bytes() * 2});
    return aten::scale(t, values);  // * attention_scaling
  };
  Tensor cos = make("cos");
  Tensor sin = make("sin");
  cos = aten::to(t, cos, t.dtype());
  sin = aten::to(t, sin, t.dtype());
  t.share(static_cast<std::int32_t>(Slot::cos), cos);
  t.share(static_cast<std::int32_t>(Slot::sin), sin);
  t.leave(scope, Tensor());
}

RotaryTables gpt_oss_tables_of(Tape& t, const Context& c) {
  const auto table = [&](Slot slot) {
    const Tensor whole =
        t.shared(static_cast<std::int32_t>(slot), gpt_oss_table_shape(c), t.dtype());
    return aten::unsqueeze(t, whole, 1);
  };
  return {table(Slot::cos), table(Slot::sin)};
}

// _apply_rotary_emb
Tensor rotate(Tape& t, const Tensor& x, const RotaryTables& tables) {
  const std::int64_t half = x.size(-1) / 2;
  const std::vector<Tensor> halves = aten::split(t, x, {half, half}, -1);
  Tensor first, second;
  {
    const Tensor left = aten::mul(t, halves[0], tables.cos);
    const Tensor right = aten::mul(t, halves[1], tables.sin);
    first = aten::sub(t, left, right);
  }
  {
    const Tensor left = aten::mul(t, halves[1], tables.cos);
    const Tensor right = aten::mul(t, halves[0], tables.sin);
    second = aten::add(t, left, right);
  }
  return aten::cat(t, {&first, &second}, -1);
}

// eager_attention_forward: the sinks are one more column of the scores, dropped behind the softmax.
Tensor attention_with_sinks(
    Tape& t, const Context& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const Tensor keys = repeat_kv(t, k, q.size(1));
  const Tensor values = repeat_kv(t, v, q.size(1));
  Tensor weights;
  {
    const Tensor transposed = aten::transpose(t, keys, 2, 3);
    const Tensor scores = aten::matmul(t, q, transposed);
    weights = aten::scale(t, scores);
  }
  {
    // Full and sliding layers take turns; their masks are of one size.
    const Tensor causal = mask(t, c);
    const Tensor sliding = mask(t, c, Slot::window_mask);
    weights = aten::add(t, weights, causal);
  }
  Tensor sinks = t.module_parameter("sinks");
  sinks = aten::view(t, sinks, Shape{1, q.size(1), 1, 1});
  sinks = aten::expand(t, sinks, Shape{q.size(0), q.size(1), q.size(2), 1});
  Tensor logits = aten::cat(t, {&weights, &sinks}, -1);
  {
    const Tensor largest = aten::max_last(t, logits);
    logits = aten::sub(t, logits, largest);
  }
  const Tensor probabilities = aten::softmax(t, logits);
  const Tensor scores = aten::slice(t, probabilities, -1, k.size(2));
  weights = aten::dropout(t, scores, c.shape().attention_dropout);
  Tensor out = aten::matmul(t, weights, values);
  out = aten::transpose(t, out, 1, 2);
  return aten::contiguous(t, out);
}

// GptOssAttention.forward
Tensor gpt_oss_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  const auto project = [&](std::string_view module, std::int64_t heads) {
    const Tensor states = linear(t, c, module, in);
    return split_heads(t, states, heads);
  };
  Tensor query = project("q_proj", shape.heads);
  Tensor key = project("k_proj", shape.kv_heads);
  Tensor value = project("v_proj", shape.kv_heads);
  {
    const RotaryTables tables = gpt_oss_tables_of(t, c);
    const Tensor rotated_query = rotate(t, query, tables);
    const Tensor rotated_key = rotate(t, key, tables);
    query = rotated_query;
    key = rotated_key;
  }
  update_cache(t, c, key, value);
  Tensor out = attention_with_sinks(t, c, query, key, value);
  out = merge_heads(t, out);
  out = linear(t, c, "o_proj", out);
  return t.leave(scope, out);
}

// GptOssExperts._apply_gate: (up + 1) * gate * sigmoid(alpha * gate) of bounded gate and up, which
// stand alternately.
Tensor bounded_gate(Tape& t, const Tensor& both) {
  Tensor gate = aten::every_second(t, both, -1);
  Tensor up = aten::every_second(t, both, -1);
  gate = aten::clamp(t, gate, aten::Bounds::one);
  up = aten::clamp(t, up, aten::Bounds::both);
  Tensor glu;
  {
    Tensor slope = aten::scale(t, gate);
    slope = aten::sigmoid(t, slope);
    glu = aten::mul(t, gate, slope);
  }
  const Tensor raised = aten::shift(t, up);
  return aten::mul(t, raised, glu);
}

// GptOssMLP.forward; the router's softmax is over the chosen experts alone.
Tensor gpt_oss_mixture(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("mlp", in);
  const Tensor rows = aten::view(t, in, Shape{c.batch * c.sequence, c.shape().hidden});
  Tensor logits, weights;
  logits = linear(t, c, "router", rows);
  weights = aten::topk(t, logits, c.shape().experts.experts_per_token);
  weights = aten::softmax(t, weights);
  const FusedExperts how = {
      .layout = aten::StackLayout::in_out, .biased = true, .gate = bounded_gate};
  const Tensor out = fused_experts(t, c, rows, weights, how);
  return t.leave(scope, aten::view(t, out, c.hidden_shape()));
}

// GptOssDecoderLayer.forward
Tensor gpt_oss_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape(), t.dtype());
  const auto scope = t.enter("", hidden);
  Tensor residual = hidden;
  hidden = rms_norm_weighed_in_fp32(t, "input_layernorm", hidden);
  hidden = gpt_oss_self_attention(t, c, hidden);
  hidden = aten::add(t, residual, hidden);
  residual = hidden;
  hidden = rms_norm_weighed_in_fp32(t, "post_attention_layernorm", hidden);
  hidden = gpt_oss_mixture(t, c, hidden);
  hidden = aten::add(t, residual, hidden);
  return t.leave(scope, hidden);
}

void note_gpt_oss_assumptions(GraphAssembler& assembler, const Context& given) {
  assembler.assume("Tokens are spread evenly over the experts.");
  if (!given.acts(ReleaseRule::late_models_described)) {
    assembler.assume("gpt-oss before transformers 5 is described by transformers 5.17.");
  }
  if (given.attention == Attention::flash) {
    assembler.assume(
        "Kernels for attention sinks are not described: gpt-oss runs its own attention.");
  }
}

}  // namespace

void build_gpt_oss(GraphAssembler& assembler, const Context& given) {
  Context c = given;
  c.attention = Attention::eager;  // the class has no SDPA
  note_gpt_oss_assumptions(assembler, given);
  const auto beside = [&](Tape& t) {
    share_mask(t, c);
    share_mask(t, c, Slot::window_mask);
    share_gpt_oss_tables(t, c);
  };
  assembler.set_hidden(c.hidden_shape(), beside);
  assembler.add("GptOssModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.embed_tokens");
    hold_embeddings(t, c, hidden);
    beside(t);
    return hidden;
  });
  assembler.add_layers("GptOssDecoderLayer", "model.layers.", c.shape().layers, [&](Tape& t) {
    return gpt_oss_layer(t, c);
  });
  keep_logits(assembler, c);
  assembler.add("GptOssForCausalLM head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape(), t.dtype());
    hidden = rms_norm_weighed_in_fp32(t, "model.norm", hidden);
    t.forget_input();
    return causal_loss(t, c, {"lm_head", "model.embed_tokens", LossCode::loss_function}, hidden);
  });
}

}  // namespace zeroplan::hf
