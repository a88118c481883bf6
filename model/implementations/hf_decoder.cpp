// Decoders in LLaMA's line with norms, positions or masks of their own: Gemma 2 and 3, SmolLM3,
// OLMo, OLMo 2, Granite, Starcoder 2, GLM-4 (0414) and Command R.
// Source: modeling_*.py of transformers 4.40, 4.42, 4.45, 4.47 to 4.51, 4.53, 4.55, 4.57 and 5.17.
// Checked by rehearsals: tests/reference/rehearsal/matrix/families_dense.jsonl.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "model/graph/aten_recurrent.hpp"
#include "model/implementations/families.hpp"
#include "model/implementations/hf_window_masks.hpp"

namespace zeroplan::hf {

namespace {

enum class NormCode { llama, gemma, olmo2, layer_norm, cohere, plain };
enum class HeadNorms { none, each_head, all_heads, own_weights };

// A class's code: its norms, and a layer's norms by where they stand ("": none stands there).
struct Code {
  std::string_view type;
  std::string_view classes;
  NormCode norm = NormCode::llama;
  HeadNorms head_norms = HeadNorms::none;
  std::string_view before_attention = "input_layernorm";
  std::string_view after_attention = "";
  std::string_view before_mlp = "post_attention_layernorm";
  std::string_view after_mlp = "";
};

constexpr std::array<Code, 10> kCodes = {{
    {.type = "gemma2",
     .classes = "Gemma2",
     .norm = NormCode::gemma,
     .after_attention = "post_attention_layernorm",
     .before_mlp = "pre_feedforward_layernorm",
     .after_mlp = "post_feedforward_layernorm"},
    {.type = "gemma3_text",
     .classes = "Gemma3",
     .norm = NormCode::gemma,
     .head_norms = HeadNorms::each_head,
     .after_attention = "post_attention_layernorm",
     .before_mlp = "pre_feedforward_layernorm",
     .after_mlp = "post_feedforward_layernorm"},
    {.type = "smollm3", .classes = "SmolLM3"},
    {.type = "olmo", .classes = "Olmo", .norm = NormCode::plain},
    {.type = "olmo2",
     .classes = "Olmo2",
     .norm = NormCode::olmo2,
     .head_norms = HeadNorms::all_heads,
     .before_attention = "",
     .after_attention = "post_attention_layernorm",
     .before_mlp = "",
     .after_mlp = "post_feedforward_layernorm"},
    {.type = "granite", .classes = "Granite"},
    {.type = "starcoder2", .classes = "Starcoder2", .norm = NormCode::layer_norm},
    {.type = "glm4",
     .classes = "Glm4",
     .after_attention = "post_self_attn_layernorm",
     .after_mlp = "post_mlp_layernorm"},
    {.type = "cohere",
     .classes = "Cohere",
     .norm = NormCode::cohere,
     .head_norms = HeadNorms::own_weights},
    {.type = "cohere2", .classes = "Cohere2", .norm = NormCode::cohere},
}};

bool is(const Context& c, std::string_view type) { return c.model.model_type == type; }
bool is_cohere(const Context& c) { return is(c, "cohere") || is(c, "cohere2"); }

const Code& code_of(const Context& c) {
  const auto row = std::find_if(
      kCodes.begin(), kCodes.end(), [&](const Code& code) { return is(c, code.type); });
  ZP_CHECK(row != kCodes.end(), c.model.model_type + " is no decoder of this file");
  return *row;
}

// CohereLayerNorm.forward: a LayerNorm written in Python, in fp32.
Tensor cohere_norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  Tensor hidden = aten::to(t, in, DType::fp32);
  const Tensor mean = aten::mean_last(t, hidden);
  Tensor variance = aten::sub(t, hidden, mean);
  variance = aten::pow(t, variance, 2);
  variance = aten::mean_last(t, variance);
  {
    const Tensor centred = aten::sub(t, hidden, mean);
    Tensor factor = aten::shift(t, variance);
    factor = aten::rsqrt(t, factor);
    hidden = aten::mul(t, centred, factor);
  }
  {
    const Tensor weight = aten::to(t, t.module_parameter("weight"), DType::fp32);
    hidden = aten::mul(t, weight, hidden);
  }
  const Tensor out = aten::to(t, hidden, x.dtype());
  hidden = Tensor();
  variance = Tensor();
  return t.leave(scope, out);
}

// OlmoLayerNorm.forward: F.layer_norm in fp32, without weight and bias.
Tensor plain_norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor wide = aten::to(t, in, DType::fp32);
  const Tensor normed = aten::layer_norm(t, wide, Tensor(), Tensor());
  return t.leave(scope, aten::to(t, normed, x.dtype()));
}

Tensor decoder_norm(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  switch (code_of(c).norm) {
    case NormCode::llama:
      return rms_norm(t, module, x);
    case NormCode::gemma:
      return gemma_norm(t, module, x);
    case NormCode::olmo2:
      return c.acts(ReleaseRule::olmo2_weighs_in_fp32) ? rms_norm_weighed_in_fp32(t, module, x)
                                                       : rms_norm(t, module, x);
    case NormCode::layer_norm:
      return layer_norm(t, module, x);
    case NormCode::cohere:
      return cohere_norm(t, module, x);
    case NormCode::plain:
      return plain_norm(t, module, x);
  }
  return {};
}

// --- attention

// q_proj or k_proj with its norm, (b, heads, s, d): Gemma 3 normalizes behind the transpose, OLMo 2
// all heads at once, Command R each head with weights of its own.
Tensor project_decoder_heads(Tape& t,
                             const Context& c,
                             std::string_view projection,
                             std::string_view norm_module,
                             const Tensor& x,
                             std::int64_t heads) {
  Tensor states = linear(t, c, projection, x);
  if (c.model.implementation_family == "clipped_decoder") states = aten::clamp_in_place(t, states);
  const bool normed = t.has_parameter(norm_module, "weight");
  const HeadNorms norms = normed ? code_of(c).head_norms : HeadNorms::none;
  if (norms == HeadNorms::all_heads) states = decoder_norm(t, c, norm_module, states);
  states = aten::view(t, states, Shape{c.batch, c.sequence, heads, c.shape().head_dim});
  if (norms == HeadNorms::own_weights) states = decoder_norm(t, c, norm_module, states);
  states = aten::transpose(t, states, 1, 2);
  if (norms == HeadNorms::each_head) {
    states = decoder_norm(t, c, norm_module, states);
    states = with_summed_norm_gradient(t, c, states);
  }
  return states;
}

// stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
Tensor rotate_pairs(Tape& t, const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor even = aten::slice(t, x, -1, half);
  const Tensor odd = aten::slice(t, x, -1, half);
  Tensor stacked;
  {
    Tensor negated = aten::neg(t, odd);
    negated = aten::unsqueeze(t, negated, 4);
    const Tensor column = aten::unsqueeze(t, even, 4);
    stacked = aten::cat(t, {&negated, &column}, -1);
  }
  return aten::view(t, stacked, Shape{x.size(0), x.size(1), x.size(2), x.size(3)});
}

Tensor turn_pairs(Tape& t, const Tensor& x, const RotaryTables& tables) {
  const Tensor left = aten::mul(t, x, tables.cos);
  Tensor right = rotate_pairs(t, x);
  right = aten::mul(t, right, tables.sin);
  return aten::add(t, left, right);
}

struct Turned {
  Tensor query, key;
};

// apply_rotary_pos_emb of Command R: in fp32.
Turned turn_in_fp32(Tape& t, const Tensor& query, const Tensor& key, const RotaryTables& tables) {
  const Tensor wide_query = aten::to(t, query, DType::fp32);
  const Tensor wide_key = aten::to(t, key, DType::fp32);
  const Tensor turned_query = turn_pairs(t, wide_query, tables);
  const Tensor turned_key = turn_pairs(t, wide_key, tables);
  Turned turned;
  turned.query = aten::to(t, turned_query, query.dtype());
  turned.key = aten::to(t, turned_key, key.dtype());
  return turned;
}

// table[..., : rotary_dim // 2].repeat_interleave(2, dim=-1)
Tensor repeated_pairs(Tape& t, const Tensor& table) {
  const Tensor out = t.empty(table.shape().as_contiguous(), table.dtype());
  t.launch({.name = "clone", .kind = OpKind::copy, .traffic = out.bytes() * 2});
  return out;
}

// apply_rotary_pos_emb of GLM-4: a part of each head, in pairs; the rest is put behind it.
Turned turn_part(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const RotaryTables& given) {
  const RotaryTables tables = {repeated_pairs(t, given.cos), repeated_pairs(t, given.sin)};
  const std::int64_t rotary = c.shape().rotary_dim, rest = c.shape().head_dim - rotary;
  const Tensor query_rot = aten::slice(t, query, -1, rotary);
  const Tensor query_pass = aten::slice(t, rest == 0 ? query.detached() : query, -1, rest);
  const Tensor key_rot = aten::slice(t, key, -1, rotary);
  const Tensor key_pass = aten::slice(t, rest == 0 ? key.detached() : key, -1, rest);
  const Tensor turned_query = turn_pairs(t, query_rot, tables);
  const Tensor turned_key = turn_pairs(t, key_rot, tables);
  Turned turned;
  turned.query = aten::cat(t, {&turned_query, &query_pass}, -1);
  turned.key = aten::cat(t, {&turned_key, &key_pass}, -1);
  return turned;
}

Turned turn(
    Tape& t, const Context& c, const Tensor& query, const Tensor& key, const RotaryTables& tables) {
  if (is_cohere(c)) return turn_in_fp32(t, query, key, tables);
  if (is(c, "glm4")) return turn_part(t, c, query, key, tables);
  Turned turned;
  turned.query = apply_rotary(t, query, tables);
  turned.key = apply_rotary(t, key, tables);
  if (!turns_in_fp32(c)) return turned;
  const Turned wide = turned;
  turned.query = aten::to(t, wide.query, query.dtype());
  turned.key = aten::to(t, wide.key, key.dtype());
  return turned;
}

// Gemma 2's and OLMo's layers made their own tables until 4.47.
bool model_makes_tables(const Context& c) {
  return is(c, "gemma2") || is(c, "olmo") ? c.acts(ReleaseRule::gemma2_shares_rotary_tables)
                                          : shares_rotary_tables(c);
}

RotaryTables tables_of(Tape& t, const Context& c, const LayerAttention& kind) {
  if (!model_makes_tables(c)) return own_rotary_tables(t, c);
  const bool local = is(c, "gemma3_text") && kind.sliding;
  return local ? shared_rotary_tables(t, c, Slot::local_cos, Slot::local_sin)
               : shared_rotary_tables(t, c, Slot::cos, Slot::sin);
}

// In training Gemma 2, Gemma 3 and Command R7B keep no keys and values before transformers 5.
bool keeps_cache(const Context& c) {
  const bool hybrid = is(c, "gemma2") || is(c, "gemma3_text") || is(c, "cohere2");
  return !hybrid || c.acts(ReleaseRule::hybrids_keep_cache);
}

Tensor decoder_self_attention(Tape& t,
                              const Context& c,
                              const Tensor& hidden,
                              const LayerAttention& kind,
                              const Tensor& mask) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  Tensor query = project_decoder_heads(t, c, "q_proj", "q_norm", in, shape.heads);
  Tensor key = project_decoder_heads(t, c, "k_proj", "k_norm", in, shape.kv_heads);
  Tensor value = project_decoder_heads(t, c, "v_proj", "", in, shape.kv_heads);
  if (kind.rotary) {
    const RotaryTables tables = tables_of(t, c, kind);
    Turned turned = turn(t, c, query, key, tables);
    query = std::move(turned.query);
    key = std::move(turned.key);
  }
  if (keeps_cache(c)) update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  arguments.softcap = shape.attention_softcap;
  arguments.mask = mask;
  Tensor out = ulysses_attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "o_proj", out);
  out = aten::dropout(t, out, shape.hidden_dropout);
  return t.leave(scope, out);
}

// --- layer

// Starcoder2MLP.forward
Tensor two_linear_mlp(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("mlp", in);
  in = linear(t, c, "c_fc", in);
  in = activation(t, c.shape().activation, in);
  in = linear(t, c, "c_proj", in);
  in = aten::dropout(t, in, c.shape().hidden_dropout);
  return t.leave(scope, in);
}

Tensor decoder_feed_forward(Tape& t, const Context& c, const Tensor& hidden) {
  return is(c, "starcoder2") ? two_linear_mlp(t, c, hidden) : gated_mlp(t, c, hidden);
}

// residual + branch; Granite's branch times residual_multiplier
Tensor onto(Tape& t, const Context& c, const Tensor& residual, const Tensor& branch) {
  if (!is(c, "granite")) return aten::add(t, residual, branch);
  const Tensor scaled = aten::scale(t, branch);
  return aten::add(t, residual, scaled);
}

// CohereDecoderLayer.forward: both branches read the same norm.
Tensor parallel_layer(Tape& t, const Context& c, const LayerAttention& kind) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  const Tensor mask = layer_mask(t, c, kind);
  const Tensor residual = hidden;
  hidden = decoder_norm(t, c, "input_layernorm", hidden);
  const Tensor attended = decoder_self_attention(t, c, hidden, kind, mask);
  const Tensor fed = decoder_feed_forward(t, c, hidden);
  {
    const Tensor sum = aten::add(t, residual, attended);
    hidden = aten::add(t, sum, fed);
  }
  return t.leave(scope, hidden);
}

Tensor decoder_layer(Tape& t, const Context& c, const LayerAttention& kind) {
  const Code& norms = code_of(c);
  const auto normed = [&](std::string_view name, Tensor& hidden) {
    if (!name.empty()) hidden = decoder_norm(t, c, name, hidden);
  };
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  const Tensor mask = layer_mask(t, c, kind);
  Tensor residual = hidden;
  normed(norms.before_attention, hidden);
  hidden = decoder_self_attention(t, c, hidden, kind, mask);
  normed(norms.after_attention, hidden);
  hidden = onto(t, c, residual, hidden);
  residual = hidden;
  normed(norms.before_mlp, hidden);
  hidden = decoder_feed_forward(t, c, hidden);
  normed(norms.after_mlp, hidden);
  hidden = onto(t, c, residual, hidden);
  return t.leave(scope, hidden);
}

// --- model

// Gemma 3's ScaledWordEmbedding, Granite's embedding_multiplier.
bool scales_embeddings(const Context& c) { return is(c, "gemma3_text") || is(c, "granite"); }

void share_beside(Tape& t, const Context& c) {
  share_window_masks(t, c);
  if (!model_makes_tables(c)) return;
  share_rotary_tables(t, c);
  if (is(c, "gemma3_text")) share_rotary_tables(t, c, Slot::local_cos, Slot::local_sin);
}

void note_decoder_assumptions(GraphAssembler& assembler, const Context& c) {
  // decoder_layer(...) without _gradient_checkpointing_func: 4.48, 4.49, 4.50, 4.51
  const bool forgets = is(c, "starcoder2") && c.acts(ReleaseRule::starcoder2_keeps_activations);
  if (!forgets || c.options.checkpointing == ActivationCheckpointing::none) return;
  assembler.without_checkpoints();
  assembler.assume("Starcoder2 of transformers 4.48 to 4.52 ignores gradient checkpointing.");
}

}  // namespace

void build_decoder(GraphAssembler& assembler, const Context& c) {
  note_decoder_assumptions(assembler, c);
  add_rotary_caches(assembler, c);
  const std::string classes(code_of(c).classes);
  assembler.add(classes + "Model inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.embed_tokens");
    if (is(c, "gemma2")) {
      hidden = scaled_embeddings(t, c, hidden);
    } else {
      if (scales_embeddings(c)) hidden = aten::scale(t, hidden);
      hold_embeddings(t, c, hidden);
    }
    share_beside(t, c);
    hidden = aten::dropout(t, hidden, c.shape().embedding_dropout);
    return hidden;
  });
  const LayerKinds kinds = layer_kinds(c.shape());
  assembler.add_layer_kinds(
      classes + "DecoderLayer", "model.layers.", kinds.layers, [&](Tape& t, std::size_t kind) {
        return is_cohere(c) ? parallel_layer(t, c, kinds.of[kind])
                            : decoder_layer(t, c, kinds.of[kind]);
      });
  keep_logits(assembler, c);
  assembler.add(classes + "ForCausalLM head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape());
    hidden = decoder_norm(t, c, "model.norm", hidden);
    t.forget_input();
    const LossCode code = loss_where(c, ReleaseRule::decoders_share_loss, LossCode::float_in_model);
    return causal_loss(t, c, {"lm_head", "model.embed_tokens", code}, hidden);
  });
}

}  // namespace zeroplan::hf
