// modeling_qwen3_5, modeling_qwen3_5_moe and modeling_qwen3_next of transformers 5.17: gated linear
// attention (hf_delta_rule.hpp), and full attention whose output passes a gate.
// Checked by rehearsals: tests/reference/rehearsal/matrix/families_hybrid.jsonl.
#include <utility>
#include <vector>

#include "model/graph/aten_recurrent.hpp"
#include "model/implementations/hf_delta_rule.hpp"
#include "model/implementations/hf_moe.hpp"
#include "model/implementations/hf_text_models.hpp"
#include "model/implementations/hf_window_masks.hpp"

namespace zeroplan::hf {

namespace {

bool is_next(const Context& c) { return c.model.model_type == "qwen3_next"; }

// --- rotary positions

// Qwen3_5TextRotaryEmbedding.forward: angles of text, height and width, of which one table is made
// for each sequence. Qwen3-Next has LLaMA's.
void share_hybrid_tables(Tape& t, const Context& c) {
  if (is_next(c)) {
    share_rotary_tables(t, c);
    return;
  }
  const auto scope = t.enter("model.rotary_emb");
  const std::int64_t half = c.shape().rotary_dim / 2;
  const Shape grids{3, c.batch, c.sequence, half};
  const Shape whole{c.batch, c.sequence, c.shape().rotary_dim};
  Tensor angles = t.empty(grids, DType::fp32);
  t.launch({.name = "bmm", .traffic = angles.bytes(), .library = Library::cublas});
  const auto make = [&](std::string_view name) {
    Tensor values = t.empty(grids, DType::fp32);
    t.launch({.name = name, .traffic = values.bytes() * 2});
    return aten::scale(t, values);
  };
  Tensor cos = make("cos");
  Tensor sin = make("sin");
  angles = Tensor();
  const auto recompose = [&](Tensor& table) {
    Tensor both = t.empty(whole, DType::fp32);
    t.launch({.name = "cat", .kind = OpKind::copy, .traffic = both.bytes() * 3, .kernels = 3});
    table = both;
  };
  recompose(sin);
  recompose(cos);
  cos = aten::to(t, cos, t.dtype());
  sin = aten::to(t, sin, t.dtype());
  t.share(static_cast<std::int32_t>(Slot::cos), cos);
  t.share(static_cast<std::int32_t>(Slot::sin), sin);
  t.leave(scope, Tensor());
}

RotaryTables hybrid_tables_of(Tape& t, const Context& c) {
  if (is_next(c)) return layer_rotary_tables(t, c);
  const Shape shape{c.batch, c.sequence, c.shape().rotary_dim};
  const Tensor cos = t.shared(static_cast<std::int32_t>(Slot::cos), shape, t.dtype());
  const Tensor sin = t.shared(static_cast<std::int32_t>(Slot::sin), shape, t.dtype());
  return {aten::unsqueeze(t, cos, 1), aten::unsqueeze(t, sin, 1)};
}

// apply_rotary_pos_emb: the first part of each head turns; both are turned before either is put
// together with its rest.
void turn_hybrid(Tape& t, const Context& c, Tensor& query, Tensor& key) {
  const RotaryTables tables = hybrid_tables_of(t, c);
  const std::int64_t rotary = c.shape().rotary_dim, rest = c.shape().head_dim - rotary;
  const Tensor query_rot = aten::slice(t, query, -1, rotary);
  const Tensor query_pass = aten::slice(t, rest == 0 ? query.detached() : query, -1, rest);
  const Tensor key_rot = aten::slice(t, key, -1, rotary);
  const Tensor key_pass = aten::slice(t, rest == 0 ? key.detached() : key, -1, rest);
  Tensor turned_query = apply_rotary(t, query_rot, tables);
  Tensor turned_key = apply_rotary(t, key_rot, tables);
  turned_query = aten::cat(t, {&turned_query, &query_pass}, -1);
  turned_key = aten::cat(t, {&turned_key, &key_pass}, -1);
  query = turned_query;
  key = turned_key;
}

// --- full attention

Tensor normed_heads(Tape& t, std::string_view module, const Tensor& x) {
  const Tensor normed = gemma_norm(t, module, x);
  return aten::transpose(t, normed, 1, 2);
}

// Qwen3_5Attention.forward
Tensor full_attention(Tape& t, const Context& c, const Tensor& hidden, const Tensor& mask) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  const std::int64_t dim = shape.head_dim;
  Tensor query, gate;
  {
    const Tensor both = linear(t, c, "q_proj", in);
    const Tensor apart = aten::view(t, both, Shape{c.batch, c.sequence, shape.heads, 2 * dim});
    const std::vector<Tensor> halves = aten::split(t, apart, {dim, dim}, -1);
    query = halves[0];
    gate = halves[1];
  }
  gate = aten::reshape(t, gate, Shape{c.batch, c.sequence, shape.heads * dim});
  query = normed_heads(t, "q_norm", query);
  const auto project = [&](std::string_view module) {
    const Tensor states = linear(t, c, module, in);
    return aten::view(t, states, Shape{c.batch, c.sequence, shape.kv_heads, dim});
  };
  Tensor key = project("k_proj");
  key = normed_heads(t, "k_norm", key);
  Tensor value = project("v_proj");
  value = aten::transpose(t, value, 1, 2);
  turn_hybrid(t, c, query, key);
  update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  arguments.mask = mask;
  Tensor out = attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  {
    const Tensor open = aten::sigmoid(t, gate);
    out = aten::mul(t, out, open);
  }
  out = linear(t, c, "o_proj", out);
  return t.leave(scope, out);
}

// --- linear attention

// Sizes of linear attention, which the layer's parameters say: keys are as wide as values.
struct LinearShape {
  std::int64_t key_heads = 0, value_heads = 0, dim = 0;
};

LinearShape linear_shape(Tape& t) {
  LinearShape shape;
  shape.value_heads = t.module_parameter("A_log").size(0);
  shape.dim = t.module_parameter("norm.weight").size(0);
  const std::int64_t mixed = t.module_parameter("conv1d.weight").size(0);
  shape.key_heads = (mixed / shape.dim - shape.value_heads) / 2;
  return shape;
}

// What a layer projects its hidden states to.
struct Projected {
  Tensor mixed, gate, beta, decay;
};

// in_proj_qkv, in_proj_z, in_proj_b and in_proj_a
Projected project_hybrid(Tape& t, const Context& c, const Tensor& in) {
  Projected made;
  made.mixed = linear(t, c, "in_proj_qkv", in);
  made.mixed = aten::transpose(t, made.mixed, 1, 2);
  made.gate = linear(t, c, "in_proj_z", in);
  made.beta = linear(t, c, "in_proj_b", in);
  made.decay = linear(t, c, "in_proj_a", in);
  return made;
}

// Qwen3NextGatedDeltaNet: in_proj_qkvz and in_proj_ba, by groups of heads
// (fix_query_key_value_ordering).
Projected project_by_heads(Tape& t, const Context& c, const Tensor& in) {
  const LinearShape shape = linear_shape(t);
  const std::int64_t group = shape.value_heads / shape.key_heads;
  const std::int64_t values = group * shape.dim;
  const Shape rows{c.batch, c.sequence, shape.key_heads, 2 * shape.dim + 2 * values};
  const Tensor wide = linear(t, c, "in_proj_qkvz", in);
  const Tensor narrow = linear(t, c, "in_proj_ba", in);
  const Tensor heads = aten::view(t, wide, rows);
  const std::vector<Tensor> parts =
      aten::split(t, heads, {shape.dim, shape.dim, values, values}, -1);
  const Tensor pairs =
      aten::view(t, narrow, Shape{c.batch, c.sequence, shape.key_heads, 2 * group});
  const std::vector<Tensor> numbers = aten::split(t, pairs, {group, group}, -1);
  const auto flat = [&](const Tensor& x) {
    return aten::reshape(t, x, Shape{c.batch, c.sequence, x.size(2) * x.size(3)});
  };
  Projected made;
  const Tensor value = flat(parts[2]);
  made.gate = flat(parts[3]);
  made.beta = flat(numbers[0]);
  made.decay = flat(numbers[1]);
  const Tensor query = flat(parts[0]);
  const Tensor key = flat(parts[1]);
  made.mixed = aten::cat(t, {&query, &key, &value}, -1);
  made.mixed = aten::transpose(t, made.mixed, 1, 2);
  return made;
}

// causal_conv1d_fn: silu(conv1d(x)[:, :, :s])
Tensor convolved(Tape& t, const Context& c, const Tensor& mixed) {
  const auto scope = t.enter("conv1d");
  const Tensor wide = aten::depthwise_conv1d(t, mixed, t.module_parameter("weight"));
  const Tensor cut = aten::slice(t, wide, 2, c.sequence);
  return t.leave(scope, aten::silu(t, cut));
}

// -exp(A_log) * softplus(a + dt_bias), in fp32
Tensor decay_of(Tape& t, const Tensor& a) {
  const Tensor rate = aten::to(t, t.module_parameter("A_log"), DType::fp32);
  const Tensor speed = aten::exp(t, rate);
  const Tensor negative = aten::neg(t, speed);
  const Tensor wide = aten::to(t, a, DType::fp32);
  const Tensor shifted = aten::add(t, wide, t.module_parameter("dt_bias"));
  const Tensor step = aten::softplus(t, shifted);
  return aten::mul(t, negative, step);
}

// RMSNormGated.forward
Tensor gated_norm(Tape& t, const Tensor& x, const Tensor& gate) {
  Tensor in = x;
  const auto scope = t.enter("norm", in);
  Tensor hidden = aten::to(t, in, DType::fp32);
  Tensor variance = aten::pow(t, hidden, 2);
  variance = aten::mean_last(t, variance);
  {
    Tensor factor = aten::shift(t, variance);
    factor = aten::rsqrt(t, factor);
    hidden = aten::mul(t, hidden, factor);
  }
  {
    const Tensor normed = aten::to(t, hidden, x.dtype());
    hidden = aten::mul(t, t.module_parameter("weight"), normed);
  }
  {
    const Tensor wide = aten::to(t, gate, DType::fp32);
    const Tensor open = aten::silu(t, wide);
    hidden = aten::mul(t, hidden, open);
  }
  const Tensor out = aten::to(t, hidden, x.dtype());
  hidden = Tensor();
  variance = Tensor();
  return t.leave(scope, out);
}

// Qwen3_5GatedDeltaNet.forward
Tensor linear_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("linear_attn", in);
  const LinearShape shape = linear_shape(t);
  const std::int64_t keys = shape.key_heads * shape.dim;
  const std::int64_t values = shape.value_heads * shape.dim;
  Projected made = is_next(c) ? project_by_heads(t, c, in) : project_hybrid(t, c, in);
  Tensor mixed = convolved(t, c, made.mixed);
  made.mixed = Tensor();
  mixed = aten::transpose(t, mixed, 1, 2);
  DeltaRuleInputs given;
  {
    const std::vector<Tensor> parts = aten::split(t, mixed, {keys, keys, values}, -1);
    const auto heads = [&](const Tensor& x) {
      return aten::reshape(t, x, Shape{c.batch, c.sequence, x.size(2) / shape.dim, shape.dim});
    };
    given.query = heads(parts[0]);
    given.key = heads(parts[1]);
    given.value = heads(parts[2]);
  }
  given.beta = aten::sigmoid(t, made.beta);
  given.decay = decay_of(t, made.decay);
  const std::int64_t group = shape.value_heads / shape.key_heads;
  if (group > 1) {
    given.query = aten::repeat_heads(t, given.query, group);
    given.key = aten::repeat_heads(t, given.key, group);
  }
  Tensor state;
  const bool caches =
      c.options.use_cache && c.options.checkpointing == ActivationCheckpointing::none;
  Tensor out = gated_delta_rule(t, c.options.linear_attention, given, caches, state);
  if (caches) {
    t.hold(state);
  } else {
    state = Tensor();
  }
  const Shape rows{c.batch * c.sequence * shape.value_heads, shape.dim};
  out = aten::reshape(t, out, rows);
  const Tensor gate = aten::reshape(t, made.gate, rows);
  made.gate = gate;
  out = gated_norm(t, out, gate);
  out = aten::reshape(t, out, Shape{c.batch, c.sequence, values});
  out = linear(t, c, "out_proj", out);
  return t.leave(scope, out);
}

// --- layer

// Which attention a layer has its parameters say.
Tensor hybrid_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape(), t.dtype());
  const auto scope = t.enter("", hidden);
  const bool linear = t.has_parameter("linear_attn", "A_log");
  const Tensor mask = linear ? Tensor() : layer_mask(t, c, {});
  Tensor residual = hidden;
  hidden = gemma_norm(t, "input_layernorm", hidden);
  hidden = linear ? linear_attention(t, c, hidden) : full_attention(t, c, hidden, mask);
  hidden = aten::add(t, residual, hidden);
  residual = hidden;
  hidden = gemma_norm(t, "post_attention_layernorm", hidden);
  hidden = has_layer(t, "mlp.gate") ? sparse_moe(t, c, "mlp", hidden) : gated_mlp(t, c, hidden);
  hidden = aten::add(t, residual, hidden);
  return t.leave(scope, hidden);
}

void note_hybrid_assumptions(GraphAssembler& assembler, const Context& c) {
  assembler.assume(who_computes(c.options.linear_attention));
  if (!c.acts(ReleaseRule::linear_attention_described)) {
    assembler.assume("Linear attention of this release is described by transformers 5.17.");
  }
  if (c.shape().experts.experts > 0) {
    assembler.assume("Tokens are spread evenly over the experts.");
  }
}

}  // namespace

void build_hybrid(GraphAssembler& assembler, const Context& c) {
  note_hybrid_assumptions(assembler, c);
  assembler.add("Qwen3_5TextModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.embed_tokens");
    hold_embeddings(t, c, hidden);
    share_window_masks(t, c);
    share_hybrid_tables(t, c);
    return hidden;
  });
  assembler.add_layers("Qwen3_5DecoderLayer", "model.layers.", c.shape().layers, [&](Tape& t) {
    return hybrid_layer(t, c);
  });
  keep_logits(assembler, c);
  assembler.add("Qwen3_5ForCausalLM head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape(), t.dtype());
    hidden = gemma_norm(t, "model.norm", hidden);
    t.forget_input();
    return causal_loss(t, c, {"lm_head", "model.embed_tokens", LossCode::loss_function}, hidden);
  });
}

}  // namespace zeroplan::hf
