// LLaMA for the embedded runtime: grouped queries, RMSNorm, rotary positions, SwiGLU. The classes
// copied from Llama (Mistral, Qwen2 with its biases) are the same calls.
//
// The residual stream's gradient is one storage from the head to the embedding: every layer adds to
// it in place. SwiGLU's gradients take the place of its inputs.
#include <string>
#include <utility>

#include "model/implementations/embedded_layers.hpp"
#include "model/implementations/families.hpp"

namespace zeroplan::embedded {
namespace {

struct Attention {
  Norm norm;
  Heads heads;
  AttentionOutput core;
  KernelOperand out;  // the residual sum
};

struct Mlp {
  Norm norm;
  KernelOperand gate, up, product, out;
};

Attention attention_forward(BlockBuilder& b, KernelOperand x) {
  Attention saved;
  saved.norm = norm(b, "input_layernorm", x);
  {
    const auto scope = b.module("self_attn");
    saved.heads.q = linear(b, "q_proj", saved.norm.y, Keep::selective);
    saved.heads.k = linear(b, "k_proj", saved.norm.y, Keep::selective);
    saved.heads.v = linear(b, "v_proj", saved.norm.y, Keep::selective);
    rotary(b, Kernel::rotary_forward, saved.heads);
    saved.core = attention(b, saved.heads);
    saved.out = linear(b, "o_proj", saved.core.out, Keep::selective);
  }
  add_to(b, saved.out, x);
  return saved;
}

Mlp mlp_forward(BlockBuilder& b, KernelOperand x) {
  const std::int64_t width = b.shape().intermediate;
  Mlp saved;
  saved.norm = norm(b, "post_attention_layernorm", x);
  {
    const auto scope = b.module("mlp");
    saved.gate = linear(b, "gate_proj", saved.norm.y, Keep::selective);
    saved.up = linear(b, "up_proj", saved.norm.y, Keep::selective);
    saved.product = b.tensor(b.rows() * width);
    KernelCall call;
    call.kernel = Kernel::swiglu_forward;
    call.columns = width;
    call.operands = {saved.product, saved.gate, saved.up};
    b.run(std::move(call));
    saved.out = linear(b, "down_proj", saved.product, Keep::no);
  }
  add_to(b, saved.out, x);
  return saved;
}

// `d`: the gradient of the residual stream, behind and before.
void mlp_backward(BlockBuilder& b, const Mlp& saved, KernelOperand d) {
  KernelOperand d_y;
  {
    const auto scope = b.module("mlp");
    const KernelOperand d_product = linear_backward(b, "down_proj", {.d_y = d, .x = saved.product});
    KernelCall call;
    call.kernel = Kernel::swiglu_backward;
    call.columns = b.shape().intermediate;
    call.operands = {saved.gate, saved.up, d_product, saved.gate, saved.up};
    b.run(std::move(call));
    d_y = linear_backward(b, "up_proj", {.d_y = saved.up, .x = saved.norm.y});
    linear_backward(
        b, "gate_proj", {.d_y = saved.gate, .x = saved.norm.y, .d_x = d_y, .accumulate = true});
  }
  norm_backward(b, "post_attention_layernorm", saved.norm, d_y, d);
}

void attention_backward(BlockBuilder& b, const Attention& saved, KernelOperand d) {
  KernelOperand d_y;
  {
    const auto scope = b.module("self_attn");
    const KernelOperand d_core = linear_backward(b, "o_proj", {.d_y = d, .x = saved.core.out});
    const Heads gradients = embedded::attention_backward(b, saved.heads, saved.core, d_core);
    rotary(b, Kernel::rotary_backward, gradients);
    const KernelOperand x = saved.norm.y;
    d_y = linear_backward(b, "v_proj", {.d_y = gradients.v, .x = x});
    linear_backward(b, "k_proj", {.d_y = gradients.k, .x = x, .d_x = d_y, .accumulate = true});
    linear_backward(b, "q_proj", {.d_y = gradients.q, .x = x, .d_x = d_y, .accumulate = true});
  }
  norm_backward(b, "input_layernorm", saved.norm, d_y, d);
}

Block llama_layer_block(BlockBuilder b) {
  const KernelOperand x = b.input(b.rows() * b.shape().hidden);
  Attention attention;
  Mlp mlp;
  {
    const auto scope = b.module("");
    attention = attention_forward(b, x);
    mlp = mlp_forward(b, attention.out);
  }
  b.set_output(mlp.out);
  const KernelOperand d = b.begin_backward();
  {
    const auto scope = b.module("");
    mlp_backward(b, mlp, d);
    attention_backward(b, attention, d);
  }
  b.set_input_gradient(d);
  return b.take();
}

Block llama_input_block(BlockBuilder b, bool tied) {
  b.set_output(embedding(b, "model.embed_tokens"));
  const KernelOperand d = b.begin_backward();
  embedding_backward(b, "model.embed_tokens", d, tied);
  return b.take();
}

void check_llama(const hf::Context& c) {
  const TransformerShape& shape = c.shape();
  const auto has = [&](std::string_view suffix) {
    for (const Parameter& parameter : c.model.parameters) {
      if (parameter.name.ends_with(suffix)) return true;
    }
    return false;
  };
  if (shape.experts.experts > 0) refuse(c, "mixture of experts");
  if (shape.position != PositionKind::rotary) refuse(c, "other than rotary positions");
  if (shape.rotary_scaled) refuse(c, "scaled rotary frequencies (rope_scaling)");
  if (shape.rotary_dim != shape.head_dim) refuse(c, "a part of each head rotated");
  if (shape.activation != ActivationFunction::silu) refuse(c, "an activation other than SiLU");
  if (c.model.model_type == "gemma") refuse(c, "its norms and scaled embeddings");
  if (has("qkv_proj.weight") || has("W_pack.weight")) refuse(c, "fused projections");
  if (has("q_norm.weight")) refuse(c, "norms of queries and keys");
  if (shape.sliding_window > 0 && shape.sliding_window < c.sequence) {
    refuse(c, "a sliding window shorter than the sequence");
  }
}

}  // namespace

void build_llama(GraphAssembler& assembler, const hf::Context& c) {
  check_llama(c);
  note_dropout(assembler, c);
  const auto builder = [&](const char* name, const std::string& prefix, bool checkpoint) {
    return BlockBuilder({name, prefix, &c.model, &c.options, checkpoint});
  };
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return llama_input_block(builder("LlamaModel inputs", prefix, checkpoint),
                             c.shape().tied_embeddings);
  });
  assembler.add_written_layers(
      "model.layers.", c.shape().layers, [&](const std::string& prefix, bool checkpoint) {
        return llama_layer_block(builder("LlamaDecoderLayer", prefix, checkpoint));
      });
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return head_block(builder("LlamaForCausalLM head", prefix, checkpoint),
                      "model.norm",
                      {"lm_head", "model.embed_tokens", ""});
  });
}

}  // namespace zeroplan::embedded
