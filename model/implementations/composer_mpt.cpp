// MPT as llm-foundry writes it and Composer runs it: flash attention on one fused projection,
// low-precision LayerNorm, no biases, a GELU feed-forward of four hidden sizes, the vocabulary head
// tied to the embedding, flash-attn's fused cross entropy outside the model (loss_fn:
// fused_crossentropy, the default).
// Training metrics (use_train_metrics, the default) pass twice more over the logits of every
// micro-batch, after its backward pass (Composer trainer.py _eval_train_metrics).
//
// Sources (mosaicml/llm-foundry): llmfoundry/models/layers/blocks.py MPTBlock, attention.py
// MultiheadAttention and flash_attn_fn, norm.py LPLayerNorm, ffn.py MPTMLP,
// models/mpt/modeling_mpt.py MPTModel.forward and ComposerMPTCausalLM.loss. Weights and activations
// are 16-bit throughout (FSDP's MixedPrecision, autocast, low_precision_layernorm).
#include <utility>
#include <vector>

#include "model/implementations/families.hpp"

namespace zeroplan::composer {

namespace {

using hf::Context;

// qkv = Wqkv(x); query, key, value = qkv.chunk(3, dim=2): views, which the kernel takes as they
// are, (b, s, heads, d) each.
Tensor attention(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("attn", in);
  const TransformerShape& shape = c.shape();
  Tensor out;
  {
    const Tensor mixed = hf::linear(t, c, "Wqkv", in);
    std::vector<Tensor> parts =
        aten::split(t, mixed, {shape.hidden, shape.hidden, shape.hidden}, 2);
    const Tensor query = hf::split_heads(t, parts[0], shape.heads);
    const Tensor key = hf::split_heads(t, parts[1], shape.heads);
    const Tensor value = hf::split_heads(t, parts[2], shape.heads);
    parts.clear();
    aten::Sdpa options;
    options.backend = hf::sdpa_backend(c, false, shape.head_dim, true);
    options.dropout = shape.attention_dropout;
    out = aten::scaled_dot_product_attention(t, query, key, value, Tensor(), options);
  }
  out = aten::transpose(t, out, 1, 2);
  out = hf::merge_heads(t, out);
  out = hf::linear(t, c, "out_proj", out);
  return t.leave(scope, out);
}

Tensor feed_forward(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("ffn", in);
  Tensor hidden = hf::linear(t, c, "up_proj", in);
  hidden = aten::gelu(t, hidden);
  hidden = hf::linear(t, c, "down_proj", hidden);
  return t.leave(scope, hidden);
}

// MPTBlock.forward
Tensor block(Tape& t, const Context& c) {
  Tensor x = t.input(c.hidden_shape());
  const auto scope = t.enter("", x);
  Tensor a = hf::layer_norm(t, "norm_1", x);
  a = attention(t, c, a);
  a = aten::dropout(t, a, c.shape().hidden_dropout);
  x = aten::add(t, x, a);
  a = Tensor();
  Tensor m = hf::layer_norm(t, "norm_2", x);
  m = feed_forward(t, c, m);
  m = aten::dropout(t, m, c.shape().hidden_dropout);
  x = aten::add(t, x, m);
  return t.leave(scope, x);
}

Tensor embeddings(Tape& t, const Context& c) {
  Tensor x = hf::token_embedding(t, c, "transformer.wte");
  if (c.shape().position == PositionKind::learned) {
    const auto scope = t.enter("transformer.wpe");
    Tensor positions = aten::embedding(t, Shape{1, c.sequence}, t.module_parameter("weight"));
    positions = t.leave(scope, positions);
    x = aten::add(t, x, positions);
  }
  return aten::dropout(t, x, c.shape().embedding_dropout);
}

}  // namespace

void build_mpt(GraphAssembler& assembler, const Context& c) {
  assembler.add("MPTModel inputs", "", [&](Tape& t) { return embeddings(t, c); });
  assembler.add_layers(
      "MPTBlock", "transformer.blocks.", c.shape().layers, [&](Tape& t) { return block(t, c); });
  hf::add_causal_head(assembler,
                      c,
                      "MPTForCausalLM head",
                      "transformer.norm_f",
                      {.module = "lm_head",
                       .embedding = "transformer.wte",
                       .code = hf::LossCode::fused_outside,
                       .training_metrics = 2});
}

}  // namespace zeroplan::composer
