// LLaMA as IBM's foundation-model-stack writes it and fms-fsdp trains it: under torch.compile,
// which turns each norm, the rotation of queries and keys, the gating and the residual sums into
// one kernel each; fused attention; the loss as cross entropy of 16-bit logits outside the model.
//
// Sources: foundation-model-stack fms/models/llama.py LLaMABlock, fms/modules/attention.py
// MultiHeadAttention, fms/modules/feedforward.py GatedLinearUnit, fms/modules/layernorm.py
// LayerNormParameterized; fms-fsdp fms_fsdp/utils/train_utils.py train, config/training.py
// (use_torch_compile = True, selective_checkpointing = 1). Names of parameters are those of
// transformers' class with the same tensors.
#include <utility>

#include "model/implementations/families.hpp"

namespace zeroplan::fms {

namespace {

using hf::Context;

// One compiled kernel over x that saves what its backward kernel reads.
Tensor fused(Tape& t, std::string_view name, std::initializer_list<const Tensor*> inputs) {
  const Tensor& first = **inputs.begin();
  const bool trains = t.trains(inputs);
  std::vector<Tensor> saved;
  Bytes traffic = first.bytes();
  for (const Tensor* input : inputs) {
    traffic += aten::distinct_bytes(*input);
    if (trains) saved.push_back(t.save(*input));
  }
  Tensor out = t.empty(first.shape().as_dense(), first.dtype());
  t.launch({.name = name, .traffic = traffic});
  if (!trains) return out;
  t.record({&out}, std::vector<const Tensor*>(inputs), [saved, name](Backward& b) {
    Bytes bytes = b.gradient().bytes();
    std::vector<Tensor> gradients;
    for (const Tensor& x : saved) {
      gradients.push_back(b.tape.empty(x.shape().as_dense(), x.dtype()));
      bytes += x.bytes() * 2;
    }
    b.tape.launch({.name = name, .traffic = bytes});
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (b.needs(i)) b.give(i, std::move(gradients[i]));
    }
  });
  return out;
}

// A rotation saves nothing: its backward turns the gradient the other way.
Tensor rotate(Tape& t, const Tensor& x) {
  const bool trains = t.trains({&x});
  Tensor out = t.empty(x.shape().as_dense(), x.dtype());
  t.launch({.name = "rotary", .traffic = x.bytes() * 2});
  if (trains) {
    t.record({&out}, {&x}, [](Backward& b) { b.give(0, rotate(b.tape, b.gradient())); });
  }
  return out;
}

// One compiled kernel each way; the inverse root of each row is kept.
Tensor norm(Tape& t, std::string_view module, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter(module, in);
  const Tensor out = aten::layer_norm(t, in, t.module_parameter("weight"), Tensor());
  return t.leave(scope, out);
}

Tensor attention(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("self_attn", in);
  const TransformerShape& shape = c.shape();
  Tensor query = hf::split_heads(t, hf::linear(t, c, "q_proj", in), shape.heads);
  Tensor key = hf::split_heads(t, hf::linear(t, c, "k_proj", in), shape.kv_heads);
  const Tensor value = hf::split_heads(t, hf::linear(t, c, "v_proj", in), shape.kv_heads);
  query = rotate(t, query);
  key = rotate(t, key);
  aten::Sdpa options;
  options.backend = hf::sdpa_backend(c, false, shape.head_dim, true);
  options.enable_gqa = shape.heads != shape.kv_heads;
  Tensor out = aten::scaled_dot_product_attention(t, query, key, value, Tensor(), options);
  out = aten::transpose(t, out, 1, 2);
  out = hf::merge_heads(t, out);
  out = hf::linear(t, c, "o_proj", out);
  return t.leave(scope, out);
}

// GatedLinearUnit.forward: w2(a(wg(x)) * w1(x))
Tensor feed_forward(Tape& t, const Context& c, const Tensor& x) {
  Tensor in = x;
  const auto scope = t.enter("mlp", in);
  Tensor product;
  {
    const Tensor gate = hf::linear(t, c, "gate_proj", in);
    const Tensor up = hf::linear(t, c, "up_proj", in);
    product = fused(t, "silu_mul", {&gate, &up});
  }
  return t.leave(scope, hf::linear(t, c, "down_proj", product));
}

Tensor block(Tape& t, const Context& c) {
  Tensor x = t.input(c.hidden_shape());
  const auto scope = t.enter("", x);
  Tensor y = norm(t, "input_layernorm", x);
  y = attention(t, c, y);
  x = aten::add(t, x, y);
  y = norm(t, "post_attention_layernorm", x);
  y = feed_forward(t, c, y);
  x = aten::add(t, x, y);
  y = Tensor();
  return t.leave(scope, x);
}

}  // namespace

void build_llama(GraphAssembler& assembler, const Context& c) {
  assembler.assume("fms: run under torch.compile, as fms-fsdp does by default");
  if (c.options.checkpointing == ActivationCheckpointing::selective) {
    assembler.assume("fms: selective checkpointing of every block, fms-fsdp's default share");
  }
  assembler.add(
      "LLaMA inputs", "", [&](Tape& t) { return hf::token_embedding(t, c, "model.embed_tokens"); });
  assembler.add_layers(
      "LLaMABlock", "model.layers.", c.shape().layers, [&](Tape& t) { return block(t, c); });
  assembler.add("LLaMA head", "", [&](Tape& t) {
    Tensor hidden = t.input(c.hidden_shape());
    hidden = norm(t, "model.norm", hidden);
    return hf::causal_loss(
        t, c, {"lm_head", "model.embed_tokens", hf::LossCode::unshifted_in_model}, hidden);
  });
}

}  // namespace zeroplan::fms
