// modeling_llama and the classes copied from it: Llama, Mistral, Qwen2 (biases), Qwen3 (head
// norms).
#include <string_view>
#include <utility>

#include "model/implementations/families.hpp"
#include "model/implementations/hf_liger.hpp"
#include "model/implementations/hf_tiled.hpp"

namespace zeroplan::hf {

namespace {

// Qwen3Attention: RMSNorm over each head, before the transpose.
Tensor project_llama_heads(Tape& t,
                           const Context& c,
                           std::string_view projection,
                           std::string_view norm,
                           const Tensor& x,
                           std::int64_t heads) {
  Tensor states = linear(t, c, projection, x);
  if (!t.has_parameter(norm, "weight")) return split_heads(t, states, heads);
  states = aten::view(t, states, Shape{c.batch, c.sequence, heads, c.shape().head_dim});
  states = has_liger_layers(c) ? liger_rms_norm(t, norm, states) : rms_norm(t, norm, states);
  states = with_summed_norm_gradient(t, c, states);
  return aten::transpose(t, states, 1, 2);
}

struct LlamaHeads {
  Tensor query, key, value;
};

// Phi3Attention: qkv[..., :n] slices. Baichuan's W_pack is taken as a split into three.
LlamaHeads fused_projection(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  const TransformerShape& shape = c.shape();
  const Tensor fused = linear(t, c, module, x);
  const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  Tensor query, key, value;
  if (module == "qkv_proj") {
    query = aten::slice(t, fused, -1, q);
    key = aten::slice(t, fused, -1, kv);
    value = aten::slice(t, fused, -1, kv);
  } else {
    std::vector<Tensor> parts = aten::split(t, fused, {q, kv, kv}, -1);
    query = parts[0];
    key = parts[1];
    value = parts[2];
  }
  return {split_heads(t, query, shape.heads),
          split_heads(t, key, shape.kv_heads),
          split_heads(t, value, shape.kv_heads)};
}

LlamaHeads project_llama(Tape& t, const Context& c, const Tensor& x) {
  if (has_layer(t, "qkv_proj")) return fused_projection(t, c, "qkv_proj", x);
  if (has_layer(t, "W_pack")) return fused_projection(t, c, "W_pack", x);
  const TransformerShape& shape = c.shape();
  LlamaHeads heads;
  heads.query = project_llama_heads(t, c, "q_proj", "q_norm", x, shape.heads);
  heads.key = project_llama_heads(t, c, "k_proj", "k_norm", x, shape.kv_heads);
  heads.value = project_llama_heads(t, c, "v_proj", "", x, shape.kv_heads);
  return heads;
}

// Phi-3 rotates a part of each head since 4.49, with slices and cats also where it is the whole.
Tensor rotate(Tape& t, const Context& c, const Tensor& x, const RotaryTables& tables) {
  const bool partial = c.shape().rotary_dim != c.shape().head_dim ||
                       (c.model.model_type == "phi3" && c.acts(ReleaseRule::phi3_rotates_a_part));
  return partial ? apply_partial_rotary(t, c, x, tables) : apply_rotary(t, x, tables);
}

// LlamaAttention.forward
Tensor llama_self_attention(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  Tensor query, key, value;
  {
    LlamaHeads heads = project_llama(t, c, in);
    query = std::move(heads.query);
    key = std::move(heads.key);
    value = std::move(heads.value);
  }
  const RotaryTables tables = layer_rotary_tables(t, c);
  if (has_liger_layers(c)) {
    liger_rotary(t, query, key, tables);
  } else {
    // apply_rotary_pos_emb holds both results until it returns
    const Tensor rotated_query = rotate(t, c, query, tables);
    const Tensor rotated_key = rotate(t, c, key, tables);
    query = rotated_query;
    key = rotated_key;
  }
  update_cache(t, c, key, value);
  AttentionArguments arguments;
  arguments.dropout = shape.attention_dropout;
  Tensor out = ulysses_attention(t, c, query, key, value, arguments);
  out = merge_heads(t, out);
  out = linear(t, c, "o_proj", out);
  return t.leave(scope, out);
}

// Phi3MLP.forward: gate, up = gate_up_proj(x).chunk(2); down_proj(up * act(gate))
Tensor fused_mlp(Tape& t, const Context& c, const Tensor& x) {
  const std::int64_t f = c.shape().intermediate;
  Tensor up_states;
  {
    up_states = linear(t, c, "gate_up_proj", x);
    std::vector<Tensor> parts = aten::split(t, up_states, {f, f}, -1);
    const Tensor gate = parts[0];
    up_states = parts[1];
    parts.clear();
    if (has_liger_layers(c)) {
      up_states = liger_gated_product(t, gate, up_states);
    } else {
      const Tensor activated = activation(t, c.shape().activation, gate);
      up_states = aten::mul(t, up_states, activated);
    }
  }
  return linear(t, c, "down_proj", up_states);
}

bool is_gemma(const Context& c) { return c.model.model_type == "gemma"; }

Tensor llama_norm(Tape& t, const Context& c, std::string_view module, const Tensor& x) {
  if (has_liger_layers(c)) return liger_rms_norm(t, module, x);
  return is_gemma(c) ? gemma_norm(t, module, x) : rms_norm(t, module, x);
}

Tensor llama_feed_forward(Tape& t, const Context& c, const Tensor& hidden) {
  if (has_layer(t, "block_sparse_moe.gate")) {
    return sparse_moe(t, c, "block_sparse_moe", hidden);
  }
  if (has_layer(t, "mlp.gate")) return sparse_moe(t, c, "mlp", hidden);
  return gated_mlp(t, c, hidden);
}

// LlamaDecoderLayer.forward; Phi-3 has dropouts on both branches.
Tensor llama_layer(Tape& t, const Context& c) {
  Tensor hidden = t.input(c.hidden_shape());
  const auto scope = t.enter("", hidden);
  const double p = c.shape().hidden_dropout;
  Tensor residual = hidden;
  hidden = llama_norm(t, c, "input_layernorm", hidden);
  hidden = llama_self_attention(t, c, hidden);
  hidden = aten::dropout(t, hidden, p);
  hidden = aten::add(t, residual, hidden);
  residual = hidden;
  hidden = llama_norm(t, c, "post_attention_layernorm", hidden);
  hidden = llama_feed_forward(t, c, hidden);
  hidden = aten::dropout(t, hidden, p);
  hidden = aten::add(t, residual, hidden);
  return t.leave(scope, hidden);
}

void note_llama_assumptions(GraphAssembler& assembler, const Context& c) {
  if (c.model.model_type == "baichuan" || c.model.model_type == "internlm") {
    assembler.assume(phrase("{}: the model's own code is described by transformers' Llama.",
                            c.model.model_type));
  }
  if (c.shape().experts.experts > 0) {
    assembler.assume("Tokens are spread evenly over the experts.");
    if (c.acts(ReleaseRule::experts_undescribed) && !c.shape().experts.fused) {
      assembler.assume("Experts run one after the other, as in transformers 4.50.");
    }
  }
}

}  // namespace

// LlamaMLP.forward: down_proj(act_fn(gate_proj(x)) * up_proj(x))
Tensor gated_mlp(Tape& t, const Context& c, const Tensor& hidden) {
  Tensor in = hidden;
  const auto scope = t.enter("mlp", in);
  if (has_layer(t, "gate_up_proj")) return t.leave(scope, fused_mlp(t, c, in));
  if (c.options.tiled_mlp) return t.leave(scope, tiled_gated_mlp(t, in));
  Tensor gate = linear(t, c, "gate_proj", in);
  if (!has_liger_layers(c)) gate = activation(t, c.shape().activation, gate);
  Tensor product;
  {
    const Tensor up = linear(t, c, "up_proj", in);
    product = has_liger_layers(c) ? liger_gated_product(t, gate, up) : aten::mul(t, gate, up);
    gate = Tensor();
  }
  const Tensor out = linear(t, c, "down_proj", product);
  return t.leave(scope, out);
}

void build_llama(GraphAssembler& assembler, const Context& given) {
  const Context c = with_sdpa_where(given, ReleaseRule::llama_has_sdpa);
  note_llama_assumptions(assembler, c);
  add_rotary_caches(assembler, c);
  const auto beside = [&](Tape& t) {
    if (needs_mask(c)) share_mask(t, c);
    if (shares_rotary_tables(c)) share_rotary_tables(t, c);
  };
  assembler.set_hidden(c.hidden_shape(), beside);
  assembler.add("LlamaModel inputs", "", [&](Tape& t) {
    Tensor hidden = token_embedding(t, c, "model.embed_tokens");
    if (is_gemma(c)) {
      hidden = scaled_embeddings(t, c, hidden);
    } else {
      hold_embeddings(t, c, hidden);
    }
    beside(t);
    return hidden;
  });
  assembler.add_layers("LlamaDecoderLayer", "model.layers.", c.shape().layers, [&](Tape& t) {
    return llama_layer(t, c);
  });
  keep_logits(assembler, c);
  assembler.add("LlamaForCausalLM head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape());
    hidden = llama_norm(t, c, "model.norm", hidden);
    t.forget_input();  // hidden_states = self.norm(hidden_states)
    const LossCode code = loss_where(c, ReleaseRule::decoders_share_loss, LossCode::float_in_model);
    return causal_loss(t, c, {"lm_head", "model.embed_tokens", code}, hidden);
  });
}

}  // namespace zeroplan::hf
