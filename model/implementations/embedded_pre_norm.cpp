// The layer of GPT-2 and BLOOM for the embedded runtime: they differ in names, in how a projection
// lays out queries, keys and values, and in the orientation of weights.
#include <string>
#include <utility>

#include "model/implementations/embedded_layers.hpp"

namespace zeroplan::embedded {
namespace {

struct PreNormSaved {
  Norm first, second;
  Heads heads;
  AttentionOutput core;
  KernelOperand sum;  // the residual stream between the branches
  KernelOperand up, activated, out;
};

void forward(BlockBuilder& b, const PreNormLayer& names, KernelOperand x, PreNormSaved& saved) {
  saved.first = norm(b, names.first_norm, x);
  {
    const auto scope = b.module(names.attention);
    const KernelOperand qkv = linear(b, names.qkv, saved.first.y, Keep::selective, names.layout);
    saved.heads = {qkv, qkv, qkv, names.heads};
    saved.core = attention(b, saved.heads);
    saved.sum = linear(b, names.projection, saved.core.out, Keep::selective, names.layout);
  }
  add_to(b, saved.sum, x);
  saved.second = norm(b, names.second_norm, saved.sum);
  {
    const auto scope = b.module(names.mlp);
    saved.up = linear(b, names.up, saved.second.y, Keep::selective, names.layout);
    saved.activated = gelu(b, saved.up, b.shape().intermediate);
    saved.out = linear(b, names.down, saved.activated, Keep::no, names.layout);
  }
  add_to(b, saved.out, saved.sum);
}

// `d`: the gradient of the residual stream, in place.
void backward(BlockBuilder& b,
              const PreNormLayer& names,
              const PreNormSaved& saved,
              KernelOperand d) {
  KernelOperand d_y;
  {
    const auto scope = b.module(names.mlp);
    const KernelOperand d_up =
        linear_backward(b, names.down, {.d_y = d, .x = saved.activated, .layout = names.layout});
    gelu_backward_in_place(b, saved.up, d_up, b.shape().intermediate);
    d_y = linear_backward(b, names.up, {.d_y = d_up, .x = saved.second.y, .layout = names.layout});
  }
  norm_backward(b, names.second_norm, saved.second, d_y, d);
  {
    const auto scope = b.module(names.attention);
    const KernelOperand d_core = linear_backward(
        b, names.projection, {.d_y = d, .x = saved.core.out, .layout = names.layout});
    const Heads gradients = attention_backward(b, saved.heads, saved.core, d_core);
    d_y = linear_backward(
        b, names.qkv, {.d_y = gradients.q, .x = saved.first.y, .layout = names.layout});
  }
  norm_backward(b, names.first_norm, saved.first, d_y, d);
}

}  // namespace

Block pre_norm_layer(BlockBuilder b, const PreNormLayer& names) {
  const KernelOperand x = b.input(b.rows() * b.shape().hidden);
  PreNormSaved saved;
  {
    const auto scope = b.module("");
    forward(b, names, x, saved);
  }
  b.set_output(saved.out);
  const KernelOperand d = b.begin_backward();
  {
    const auto scope = b.module("");
    backward(b, names, saved, d);
  }
  b.set_input_gradient(d);
  return b.take();
}

void add_pre_norm_model(GraphAssembler& assembler,
                        const hf::Context& c,
                        const PreNormModel& model) {
  const auto builder = [&](const char* name, const std::string& prefix, bool checkpoint) {
    return BlockBuilder({name, prefix, &c.model, &c.options, checkpoint});
  };
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return model.input_block(builder(model.inputs, prefix, checkpoint), c.shape().tied_embeddings);
  });
  assembler.add_written_layers(
      "transformer.h.", c.shape().layers, [&](const std::string& prefix, bool checkpoint) {
        return pre_norm_layer(builder(model.layer.block, prefix, checkpoint), model.layer);
      });
  assembler.add_written("", [&](const std::string& prefix, bool checkpoint) {
    return head_block(
        builder(model.head, prefix, checkpoint), "transformer.ln_f", {"lm_head", model.words, ""});
  });
}

}  // namespace zeroplan::embedded
